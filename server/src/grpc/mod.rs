//! The Open Inference Protocol over gRPC.

mod convert;
// Generated code has no documentation of its own beyond the schema's.
#[allow(clippy::all, missing_docs, unreachable_pub, unused_qualifications)]
#[rustfmt::skip]
mod proto;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

use crate::app::{self, App};
use crate::caller::Caller;
use crate::context::{self, CallTimeout};
use crate::inference;
use crate::protocol::Protocol;
use crate::rest::{change, check_no_parameters, check_version, described};
use proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use proto::model_metadata_response::TensorMetadata;
use proto::repository_index_response::ModelIndex;

/// The full name of the service.
const SERVICE: &str = "inference.GRPCInferenceService";

/// The state that the health service reports.
#[derive(Clone)]
pub(crate) struct Health(HealthReporter);

impl std::fmt::Debug for Health {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Whether the server takes requests.
    pub(crate) async fn set(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", SERVICE] {
            self.0.set_service_status(name, status).await;
        }
    }
}

/// Everything that is served over gRPC.
pub(crate) fn router(app: &Arc<App>) -> (Health, Router) {
    let reporter = HealthReporter::new();
    let health =
        tonic_health::pb::health_server::HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    let most = usize::try_from(app.limits.body_bytes).unwrap_or(usize::MAX);
    let service = GrpcInferenceServiceServer::new(Service { app: app.clone() })
        .max_decoding_message_size(most)
        .max_encoding_message_size(usize::MAX);
    let router = Router::new()
        .route_service(&format!("/{SERVICE}/{{*call}}"), service)
        .route_service("/grpc.health.v1.Health/{*call}", health)
        .fallback(|| async { Status::unimplemented("there is no such service").into_http::<axum::body::Body>() })
        .layer(from_fn_with_state((app.clone(), Protocol::Grpc), context::handle));
    (Health(reporter), router)
}

struct Service {
    app: Arc<App>,
}

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(
        &self,
        _: Request<proto::ServerLiveRequest>,
    ) -> Result<Response<proto::ServerLiveResponse>, Status> {
        Ok(Response::new(proto::ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<proto::ServerReadyRequest>,
    ) -> Result<Response<proto::ServerReadyResponse>, Status> {
        Ok(Response::new(proto::ServerReadyResponse { ready: self.app.admission.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<proto::ModelReadyRequest>,
    ) -> Result<Response<proto::ModelReadyResponse>, Status> {
        let proto::ModelReadyRequest { name, version } = request.into_inner();
        check_version(&name, &version)?;
        let ready = self.app.repository.is_ready(&name)? && self.app.admission.is_ready();
        Ok(Response::new(proto::ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<proto::ServerMetadataRequest>,
    ) -> Result<Response<proto::ServerMetadataResponse>, Status> {
        Ok(Response::new(proto::ServerMetadataResponse {
            name: app::NAME.into(),
            version: app::VERSION.into(),
            extensions: app::EXTENSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<proto::ModelMetadataRequest>,
    ) -> Result<Response<proto::ModelMetadataResponse>, Status> {
        let proto::ModelMetadataRequest { name, version } = request.into_inner();
        check_version(&name, &version)?;
        let model = self.app.repository.get(&name)?;
        let tensor = |info: tileforge::TensorInfo| {
            let (datatype, shape) = described(&info);
            TensorMetadata { name: info.name, datatype: datatype.into(), shape }
        };
        let [inputs, outputs] = model.interface().map(|side| side.into_iter().map(tensor).collect());
        Ok(Response::new(proto::ModelMetadataResponse {
            name,
            versions: vec![app::MODEL_VERSION.into()],
            platform: app::PLATFORM.into(),
            inputs,
            outputs,
        }))
    }

    async fn model_infer(
        &self,
        request: Request<proto::ModelInferRequest>,
    ) -> Result<Response<proto::ModelInferResponse>, Status> {
        let timeout: Option<Duration> = request.extensions().get().map(|CallTimeout(timeout)| *timeout);
        let caller: Caller = request.extensions().get().copied().unwrap_or_default();
        let request = request.into_inner();
        check_version(&request.model_name, &request.model_version)?;
        let model = self.app.repository.get(&request.model_name)?;
        let id = request.id.clone();
        let mut infer = convert::request(request)?;
        infer.options.caller = caller;
        infer.options.timeout = [infer.options.timeout, timeout].into_iter().flatten().min();
        let outputs = inference::infer(&self.app, &model, infer).await?;
        Ok(Response::new(convert::response(model.name.clone(), id, outputs)))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> Result<Response<proto::RepositoryIndexResponse>, Status> {
        let only_ready = request.into_inner().ready;
        let listed = self.app.repository.index().into_iter().filter(|model| model.ready || !only_ready);
        let models = listed.map(|model| ModelIndex {
            name: model.name,
            version: app::MODEL_VERSION.into(),
            state: if model.ready { "READY" } else { "UNAVAILABLE" }.into(),
            reason: model.reason,
        });
        Ok(Response::new(proto::RepositoryIndexResponse { models: models.collect() }))
    }

    async fn repository_model_load(
        &self,
        request: Request<proto::RepositoryModelLoadRequest>,
    ) -> Result<Response<proto::RepositoryModelLoadResponse>, Status> {
        let proto::RepositoryModelLoadRequest { model_name, parameters, .. } = request.into_inner();
        check_no_parameters(parameters.is_empty())?;
        change(&self.app, model_name, true).await?;
        Ok(Response::new(proto::RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<proto::RepositoryModelUnloadRequest>,
    ) -> Result<Response<proto::RepositoryModelUnloadResponse>, Status> {
        change(&self.app, request.into_inner().model_name, false).await?;
        Ok(Response::new(proto::RepositoryModelUnloadResponse {}))
    }
}
