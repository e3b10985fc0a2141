//! Jobs of NATS JetStream.
//!
//! The stream `QUEUE` keeps the messages of the subject `QUEUE.jobs` until a worker has done them, the consumer
//! `workers` delivers them, and the stream `QUEUE-dead` keeps the messages of `QUEUE.dead`. Missing streams and
//! consumers are created.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};
use async_nats::jetstream::{AckKind, Context};
use async_nats::{Client, ConnectOptions, ServerAddr};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use super::broker::{Broker, Delivery, Depth, Error, Lease, Result, TRACE_HEADERS};
use super::job::Job;
use super::marker::Done;
use crate::failure::chain;
use crate::settings::WorkSettings;

/// How long the broker waits for a message.
const WAIT: Duration = Duration::from_secs(1);

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Bytes of a message beside its payload: its headers.
const HEADERS: usize = 1024;

/// Jobs of NATS JetStream.
#[derive(Debug)]
pub(super) struct Nats {
    servers: Vec<ServerAddr>,
    queue: String,
    lease: Duration,
    client: OnceCell<Client>,
    /// `None`: it is looked up at the next request.
    consumer: Mutex<Option<PullConsumer>>,
}

impl Nats {
    pub(super) fn open(settings: &WorkSettings) -> Result<Self, String> {
        let servers: Result<Vec<ServerAddr>, _> = settings.broker.split(',').map(str::parse).collect();
        Ok(Self {
            servers: servers.map_err(|error| error.to_string())?,
            queue: settings.queue.clone(),
            lease: settings.lease,
            client: OnceCell::new(),
            consumer: Mutex::new(None),
        })
    }

    /// The client, which reconnects when needed.
    async fn client(&self) -> Result<&Client> {
        let connect = || {
            ConnectOptions::new()
                .name("tileforge-server")
                .connection_timeout(ANSWER)
                .request_timeout(Some(ANSWER))
                .retry_on_initial_connect()
                .reconnect_delay_callback(|tries| Duration::from_millis(100 * (tries as u64).min(20)))
                .connect(&self.servers[..])
        };
        self.client.get_or_try_init(connect).await.map_err(|error| failed(&error))
    }

    async fn context(&self) -> Result<Context> {
        let mut context = async_nats::jetstream::new(self.client().await?.clone());
        context.set_timeout(ANSWER);
        Ok(context)
    }

    async fn consumer(&self) -> Result<PullConsumer> {
        let mut kept = self.consumer.lock().await;
        if let Some(consumer) = &*kept {
            return Ok(consumer.clone());
        }
        let context = self.context().await?;
        let stream = |name: String, subject: String, retention| {
            let config = Config { name, subjects: vec![subject], retention, ..Config::default() };
            context.get_or_create_stream(config)
        };
        let queue = &self.queue;
        let jobs: Stream = stream(queue.clone(), format!("{queue}.jobs"), RetentionPolicy::WorkQueue)
            .await
            .map_err(|error| failed(&error))?;
        stream(format!("{queue}-dead"), format!("{queue}.dead"), RetentionPolicy::Limits)
            .await
            .map_err(|error| failed(&error))?;
        let config = pull::Config {
            durable_name: Some("workers".into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.lease,
            // If all workers of a message die, it has to become a dead letter, which only a worker can send: with a
            // limit here, the server would just stop delivering it.
            max_deliver: -1,
            ..pull::Config::default()
        };
        let consumer = jobs.create_consumer(config).await.map_err(|error| failed(&error))?;
        *kept = Some(consumer.clone());
        Ok(consumer)
    }

    /// Waits for an answer, up to the time limit. After a failure, the consumer is looked up again: it no longer
    /// exists if the server has lost its files.
    async fn answered<T>(&self, asked: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = timeout(WAIT + ANSWER, asked).await.unwrap_or_else(|_| Err(Error("no answer".into())));
        if answer.is_err() {
            *self.consumer.lock().await = None;
        }
        answer
    }

    /// Acknowledges a delivery, and waits until the server confirms it.
    async fn acknowledge(&self, lease: &Lease, kind: AckKind) -> Result<()> {
        let client = self.client().await?;
        client.request(lease.token.clone(), Bytes::from(kind)).await.map(|_| ()).map_err(|error| failed(&error))
    }
}

#[async_trait]
impl Broker for Nats {
    async fn receive(&self) -> Result<Option<Delivery>> {
        let receive = async {
            let consumer = self.consumer().await?;
            let batch = consumer.batch().max_messages(1).expires(WAIT);
            let mut batch = batch.messages().await.map_err(|error| failed(&error))?;
            let Some(message) = batch.next().await else { return Ok(None) };
            let message = message.map_err(|error| Error(error.to_string()))?;
            let info = message.info().map_err(|error| Error(error.to_string()))?;
            let tries = u64::try_from(info.delivered).unwrap_or(1);
            let token = message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
            let number = format!("{}.{}", info.stream, info.stream_sequence);
            let lease = Lease { token, message: number, tries, reply: None };
            let header = |name: &str| Some((name.into(), message.headers.as_ref()?.get(name)?.to_string()));
            let trace = TRACE_HEADERS.into_iter().filter_map(header).collect();
            Ok(Some(Delivery::new(lease, &message.payload, trace, Job::parse)))
        };
        self.answered(receive).await
    }

    async fn progress(&self, lease: &Lease) -> Result<()> {
        let client = self.client().await?;
        let sent = client.publish(lease.token.clone(), Bytes::from(AckKind::Progress));
        timeout(ANSWER, sent).await.map_err(|_| Error("no answer".into()))?.map_err(|error| failed(&error))
    }

    async fn done(&self, lease: &Lease, _: &Done) -> Result<()> {
        self.acknowledge(lease, AckKind::Ack).await
    }

    async fn give_back(&self, lease: &Lease, after: Duration) -> Result<()> {
        self.acknowledge(lease, AckKind::Nak(Some(after).filter(|after| !after.is_zero()))).await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<()> {
        let most = self.client().await?.server_info().max_payload.saturating_sub(HEADERS);
        let letter = delivery.dead_letter(reason, most);
        // The message id makes the server keep a repeated letter only once.
        let publish = PublishMessage::build().message_id(&delivery.lease.message).payload(letter.into());
        let context = self.context().await?;
        let sent =
            context.send_publish(format!("{}.dead", self.queue), publish).await.map_err(|error| failed(&error))?;
        sent.await.map_err(|error| failed(&error))?;
        self.acknowledge(&delivery.lease, AckKind::Ack).await
    }

    async fn depth(&self) -> Result<Depth> {
        let depth = async {
            let mut consumer = self.consumer().await?;
            let info = consumer.info().await.map_err(|error| failed(&error))?;
            Ok(Depth { waiting: info.num_pending, taken: u64::try_from(info.num_ack_pending).unwrap_or(0) })
        };
        self.answered(depth).await
    }

    fn system(&self) -> &'static str {
        "nats"
    }
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error(chain(error))
}
