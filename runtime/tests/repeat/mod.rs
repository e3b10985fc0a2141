//! Small engines that repeat each pixel, and pictures in memory.
#![allow(dead_code, unreachable_pub)] // each test program uses a part of it

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ndarray::{ArrayD, IxDyn};
use parking_lot::Mutex;
use tempfile::TempDir;
use tileforge_engine::digest::sha256_file;
use tileforge_engine::{Engine, MANIFEST_FILE, testing};
use tileforge_graph::proto::attribute_proto::AttributeType;
use tileforge_graph::proto::tensor_shape_proto::{Dimension, dimension};
use tileforge_graph::proto::{
    AttributeProto, GraphProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_proto, type_proto,
};
use tileforge_graph::{Attribute, DataType, Dim, Model, Node, Opset, Port, TensorType, Weight, WeightStorage};
use tileforge_image::{Colour, Depth, Header, RowSink, RowSource, Size};
use tileforge_runtime::host::{Handle, Host, HostOptions, Service, Terms};
use tileforge_runtime::upscale::{OpenedPicture, UpscaleOptions, UpscaleRequest, UpscaleStatistics, Upscaler};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Placement, Session, SessionOptions, Tensor, selftest};

pub const TILE: usize = 16;
pub const SCALE: u32 = 2;

/// What a network does with a tile that has a value of at least one half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum White {
    /// It fails, by an index beyond a table of one row.
    Fails,
    /// It never ends.
    NeverEnds,
    /// It fails, with words by which a lack of memory is recognised.
    LacksMemory,
    /// It repeats them as any others.
    Repeats,
}

/// The body of a loop whose condition never changes.
fn endless() -> Attribute {
    use tensor_proto::DataType::{Bool, Float, Int64};
    let declared = |name: &str, element: tensor_proto::DataType, lengths: &[i64]| {
        let dim = lengths
            .iter()
            .map(|length| Dimension { value: Some(dimension::Value::DimValue(*length)), ..Default::default() });
        let shape = Some(TensorShapeProto { dim: dim.collect() });
        let tensor = type_proto::Tensor { elem_type: Some(element as i32), shape };
        let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
        ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..Default::default() }
    };
    let node = |operator: &str, input: &str, output: &str| NodeProto {
        op_type: Some(operator.into()),
        input: vec![input.into()],
        output: vec![output.into()],
        ..Default::default()
    };
    let body = GraphProto {
        name: Some("body".into()),
        node: vec![node("Identity", "go_on", "goes_on"), node("Neg", "state", "next_state")],
        input: vec![declared("number", Int64, &[]), declared("go_on", Bool, &[1]), declared("state", Float, &[1])],
        output: vec![declared("goes_on", Bool, &[1]), declared("next_state", Float, &[1])],
        ..Default::default()
    };
    let attribute = AttributeProto {
        name: Some("body".into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body),
        ..Default::default()
    };
    Attribute::Other(Box::new(attribute))
}

/// Repeats each pixel of `batch` tiles of a side, unless one of them has a value of at least one half.
pub fn model(batch: usize, side: usize, white: White) -> Model {
    let port = |name: &str, side: usize| Port {
        name: name.into(),
        ty: TensorType::new(DataType::F32, [batch, 3, side, side]),
    };
    let node = |operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]| Node {
        name: format!("make {output}"),
        operator: operator.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|input| (*input).into()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
    };
    let number = |value: f32| Weight::from_bytes(DataType::F32, vec![1], value.to_le_bytes().to_vec()).unwrap();
    let int = Attribute::Int;
    Model {
        name: "repeat".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("input", side)],
        outputs: vec![port("output", side * SCALE as usize)],
        weights: [("zero".into(), number(0.0)), ("two".into(), number(2.0)), ("table".into(), number(1.0))]
            .into_iter()
            .collect(),
        nodes: vec![
            node("Concat", &["input", "input", "input", "input"], "four", &[("axis", int(1))]),
            node("DepthToSpace", &["four"], "large", &[("blocksize", int(2)), ("mode", Attribute::Text("DCR".into()))]),
            node("ReduceMax", &["input"], "most", &[("keepdims", int(0))]),
            node("Mul", &["most", "two"], "doubled", &[]),
            node("Cast", &["doubled"], "row", &[("to", int(7))]),
            node("Cast", &["row"], "is white", &[("to", int(9))]),
            match white {
                White::Fails => node("Gather", &["table", "row"], "found", &[]),
                White::LacksMemory => {
                    // ONNX Runtime names the node that failed.
                    let name = "failed to allocate".into();
                    Node { name, ..node("Gather", &["table", "row"], "found", &[]) }
                }
                White::Repeats => node("Cast", &["row"], "found", &[("to", int(1))]),
                White::NeverEnds => node("Loop", &["", "is white", "table"], "found", &[("body", endless())]),
            },
            node("Mul", &["found", "zero"], "nothing", &[]),
            node("Add", &["large", "nothing"], "output", &[]),
        ],
        ..Model::default()
    }
}

/// An engine with a graph for each of these batches.
pub fn engine(batches: &[usize]) -> (TempDir, Engine) {
    engine_that(batches, TILE, White::Fails)
}

/// An engine for tiles of this side. Its manifest states the memory that runs were measured to take.
pub fn engine_that(batches: &[usize], side: usize, white: White) -> (TempDir, Engine) {
    engine_of(&batches.iter().map(|batch| (*batch, side, white)).collect::<Vec<_>>())
}

/// An engine with one graph for any number of tiles up to `most`.
pub fn engine_of_any_batch(most: usize) -> (TempDir, Engine) {
    engine_with(&[(most, TILE, White::Fails)], true)
}

/// An engine with graphs for these batches of tiles of these sides.
pub fn engine_of(made: &[(usize, usize, White)]) -> (TempDir, Engine) {
    engine_with(made, false)
}

/// As [`engine_of`]; with `any_batch`, each graph takes fewer tiles, too.
fn engine_with(made: &[(usize, usize, White)], any_batch: bool) -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut files = BTreeMap::new();
    let mut graphs = Vec::new();
    for (batch, side, white) in made {
        let (batch, side) = (batch, *side);
        let name = format!("model-{batch}-{side}.onnx");
        let mut model = model(*batch, side, *white);
        if any_batch {
            for port in model.inputs.iter_mut().chain(&mut model.outputs) {
                port.ty.dims[0] = Dim::symbol("batch");
            }
        }
        tileforge_graph::save(&model, &at(&name), WeightStorage::Inline).unwrap();
        files.insert(name.clone(), sha256_file(&at(&name)).unwrap());
        let large = side * SCALE as usize;
        let mut graph = testing::graph(&name, &[*batch, 3, side, side], &[*batch, 3, large, large]);
        graph["values_bytes"] = measured(&at(&name), &[*batch, 3, side, side]).into();
        if any_batch {
            graph["any_batch"] = true.into();
            graph["values_bytes_of_one"] = measured(&at(&name), &[1, 3, side, side]).into();
        }
        graphs.push(graph);
    }
    let (batch, side, _) = made[0];
    let zeros = |side: usize| Tensor::from(ArrayD::<f32>::zeros(IxDyn(&[batch, 3, side, side])));
    let (input, output) = (zeros(side), zeros(side * SCALE as usize));
    selftest::write(&at("selftest.safetensors"), &[("input", &input)], &[("output", &output)]).unwrap();
    files.insert("selftest.safetensors".into(), sha256_file(&at("selftest.safetensors")).unwrap());
    let contract = testing::upscale(SCALE as usize, 3).contract();
    let manifest = testing::manifest("repeat", &contract, graphs, files);
    std::fs::write(at(MANIFEST_FILE), manifest.to_string()).unwrap();
    let engine = Engine::open(folder.path()).unwrap();
    (folder, engine)
}

/// Bytes that values take at most while a graph runs.
fn measured(path: &Path, input: &[usize]) -> u64 {
    let mut session = Session::open(&environment(), path, &SessionOptions::default()).unwrap();
    let zeros = Tensor::from(ArrayD::<f32>::zeros(IxDyn(input)));
    session.run(&[("input", &zeros)], &Cancel::new()).unwrap();
    session.peak_bytes().unwrap()
}

pub fn environment() -> Environment {
    Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap())
}

pub fn host() -> Host {
    Host::new(&environment(), HostOptions::default())
}

pub fn service(engine: &Engine, streams: usize, capacity: usize) -> Service<Upscaler> {
    service_of(&host(), engine, Placement { streams: Some(streams), ..Placement::default() }, capacity)
}

pub fn service_of(host: &Host, engine: &Engine, placement: Placement, capacity: usize) -> Service<Upscaler> {
    let options = UpscaleOptions { placement, ..UpscaleOptions::default() };
    Service::new(host, Upscaler::new(host, engine, options).unwrap(), capacity)
}

/// A picture that is made in memory; every sample is below one half, but for a white row.
#[derive(Clone)]
pub struct Made {
    pub header: Header,
    pub seed: u32,
    pub row: u32,
    pub white: Option<u32>,
    pub panics: Option<u32>,
}

impl Made {
    pub fn new(width: u32, height: u32, seed: u32) -> Self {
        let size = Size { width, height };
        let header = Header::new(size, Colour::Rgb, Depth::Eight);
        Self { header, seed, row: 0, white: None, panics: None }
    }

    fn sample(&self, x: u32, y: u32, channel: u32) -> u8 {
        if self.white == Some(y) { 255 } else { ((x * 7 + y * 13 + channel * 29 + self.seed * 31) % 120) as u8 }
    }

    /// Each pixel repeated.
    pub fn enlarged(&self) -> Vec<u8> {
        let Size { width, height } = self.header.size;
        let pixels = (0..height * SCALE).flat_map(|y| (0..width * SCALE).map(move |x| (x / SCALE, y / SCALE)));
        pixels.flat_map(|(x, y)| [0, 1, 2].map(|channel| self.sample(x, y, channel))).collect()
    }
}

impl RowSource for Made {
    fn name(&self) -> &Path {
        Path::new("made")
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn read_row(&mut self, row: &mut [u8]) -> tileforge_image::Result<()> {
        assert!(self.panics != Some(self.row), "poison");
        for (x, pixel) in (0..).zip(row.chunks_exact_mut(3)) {
            (0..).zip(pixel).for_each(|(channel, sample)| *sample = self.sample(x, self.row, channel));
        }
        self.row += 1;
        Ok(())
    }
}

/// What is written, and whether it was finished.
#[derive(Clone, Default)]
pub struct Kept(pub Arc<Mutex<(Vec<u8>, bool)>>);

pub struct Sink {
    pub header: Header,
    pub kept: Kept,
    pub panics: bool,
}

impl RowSink for Sink {
    fn header(&self) -> &Header {
        &self.header
    }

    fn write_rows(&mut self, rows: &[u8]) -> tileforge_image::Result<()> {
        assert!(!self.panics, "poison");
        self.kept.0.lock().0.extend_from_slice(rows);
        Ok(())
    }

    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        self.kept.0.lock().1 = true;
        Ok(())
    }
}

pub fn request(made: &Made, panics: bool) -> (UpscaleRequest, Kept) {
    let (made, kept) = (made.clone(), Kept::default());
    let sink = kept.clone();
    let request = UpscaleRequest::new(move |output_of| {
        let sink = Sink { header: output_of(&made.header)?, kept: sink, panics };
        Ok(OpenedPicture { source: Box::new(made), sink: Box::new(sink) })
    });
    (request, kept)
}

pub fn submit(service: &Service<Upscaler>, made: &Made) -> (Handle<UpscaleStatistics>, Kept) {
    let (request, kept) = request(made, false);
    (service.submit(request, Terms::default()).unwrap(), kept)
}

/// Bytes of memory that this process holds now.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Submits a picture, and checks what comes.
pub fn check(service: &Service<Upscaler>, made: &Made) {
    let (handle, kept) = submit(service, made);
    handle.wait().unwrap();
    let kept = kept.0.lock();
    assert!(kept.0 == made.enlarged() && kept.1, "{}", made.seed);
}
