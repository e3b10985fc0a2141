use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn shipped() -> BTreeMap<String, Profile> {
    let mut profiles = BTreeMap::new();
    for entry in repository("profiles").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let profile = Profile::read(path.to_str().unwrap()).unwrap_or_else(|error| panic!("{error}"));
            profiles.insert(profile.name.clone(), profile);
        }
    }
    profiles
}

#[test]
fn every_profile_has_the_figures_of_the_document() {
    let document = fs::read_to_string(repository("docs/gpu-profiles.md")).unwrap();
    // The figures of each profile: all cells except the last one, which has their source.
    let table = |head: &str| -> BTreeMap<String, Vec<&str>> {
        let rows = document.lines().skip_while(|line| !line.starts_with(head)).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].trim_matches('`').to_owned(), cells[1..cells.len() - 1].to_vec())
        });
        rows.collect()
    };
    let (documented, chips) = (table("| profile | GPU |"), table("| profile | multiprocessors |"));
    let mut profiles = shipped();
    let cpu = profiles.remove("cpu").unwrap();
    assert_eq!((cpu.provider, cpu.precision, cpu.device), (Provider::Cpu, Precision::Fp32, None));
    let openvino = profiles.remove("openvino").unwrap();
    let mut tasks = cpu.tasks;
    tasks.upscale.as_mut().unwrap().largest_tile = Some(Tile { height: 1088, width: 1024 });
    assert_eq!((openvino.provider, openvino.device, openvino.tasks), (Provider::OpenVino, None, tasks));
    // The profile `rtx` has no figures: it is for every GPU that plans are built for.
    let rtx = profiles.remove("rtx").unwrap();
    assert_eq!((rtx.provider, rtx.device), (Provider::TensorRtRtx, None));
    assert_eq!(profiles.len(), 16);
    assert!(profiles.keys().eq(documented.keys()), "{:?}", documented.keys());
    for (name, profile) in &profiles {
        let device = profile.device.as_ref().unwrap();
        let figures = [
            device.gpu.clone(),
            device.architecture.clone(),
            device.compute_capability.to_string(),
            device.memory.to_string(),
            device.bandwidth.to_string(),
        ];
        assert_eq!(documented[name], figures, "{name}");
        let chip = device.chip.as_ref();
        let chip = chip.map(|chip| {
            [chip.multiprocessors.to_string(), chip.boost_clock.to_string(), chip.cache.to_string()].to_vec()
        });
        let documented = chips.get(name).map(|cells| cells.iter().map(|cell| (*cell).to_owned()).collect());
        assert_eq!(documented, chip, "{name}");
        assert_eq!(chip.is_some(), profile.provider == Provider::TensorRtRtx, "{name}");
        assert_eq!(profile.precision, Precision::Fp16, "{name}");
        let Tasks { upscale, vae_encoder, vae_decoder, unet, inpaint, depth, realtime } = &profile.tasks;
        let tasks = [upscale, vae_encoder, vae_decoder, unet, inpaint, depth, realtime];
        assert!(tasks.into_iter().all(Option::is_some), "{name}");
        assert!(profile.families.contains(&"nvidia".to_owned()), "{name}");
    }
}

#[test]
fn every_profile_is_compiled_as_the_document_says() {
    let document = fs::read_to_string(repository("docs/gpu-profiles.md")).unwrap();
    let rows = document.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 5);
    let mut documented = BTreeMap::new();
    for line in rows {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let plans_for: Vec<&str> = cells[2].split(", ").filter(|cell| *cell != "–").collect();
        for name in cells[0].split(", ") {
            documented.insert(name.trim_matches('`').to_owned(), (cells[1].trim_matches('`'), plans_for.clone()));
        }
    }
    let profiles = shipped();
    let found: BTreeMap<String, (&str, Vec<String>)> = profiles
        .iter()
        .filter(|(_, profile)| !profile.provider.is_on_processor())
        .map(|(name, profile)| {
            let plans_for = profile.plans_for.iter().map(ToString::to_string).collect();
            (name.clone(), (profile.provider.name(), plans_for))
        })
        .collect();
    let documented: BTreeMap<String, (&str, Vec<String>)> = documented
        .into_iter()
        .map(|(name, (provider, plans_for))| (name, (provider, plans_for.into_iter().map(str::to_owned).collect())))
        .collect();
    assert_eq!(found, documented);
}

#[test]
fn plans_are_for_the_gpus_that_the_provider_takes() {
    let family = GPU.replace("provider: tensorrt\n", "provider: tensorrt-rtx\n");
    assert_eq!(read(&family, &[]).unwrap().plans_for, [ComputeCapability { major: 8, minor: 6 }]);
    let several = |capabilities: &str, more: &str| {
        let text = format!(
            "name: test\nprovider: tensorrt-rtx\nprecision: fp16\ncompute_capabilities: {capabilities}\n\
             tasks:\n  upscale: {{ tiles: [64x64] }}\n{more}"
        );
        read(&text, &[])
    };
    let mut made = several("[12.0, 8.6]", "").unwrap();
    assert_eq!(made.plans_for.iter().map(ToString::to_string).collect::<Vec<_>>(), ["8.6", "12.0"]);
    let error = made.set_precision(Precision::Fp8).unwrap_err().to_string();
    assert!(error.contains("needs compute capability 8.9, and its plans are also for 8.6"), "{error}");
    for (capabilities, expected) in [
        ("[7.5]", "expected compute capability 8.6, 8.9, 12.0 or 12.1, found 7.5"),
        ("[8.6, 9.0]", "found 9.0"),
        ("[]", "expected `gpu` and its keys, or `compute_capabilities`"),
    ] {
        let error = several(capabilities, "").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let unused = format!("{GPU}compute_capabilities: [8.6]\n");
    let error = read(&unused, &[]).unwrap_err().to_string();
    assert!(error.contains("`compute_capabilities`: expected none with `provider: tensorrt`"), "{error}");
}

#[test]
fn a_plan_is_built_with_the_profile_s_options() {
    let of = |precision| {
        let mut profile = Profile::read(repository("profiles/rtx4090.yaml").to_str().unwrap()).unwrap();
        profile.set_precision(precision).unwrap();
        profile.plan_options()
    };
    let options = of(Precision::Fp16);
    assert_eq!((options.workspace, options.optimisation_level, options.tf32), (Some(4 << 30), Some(3), true));
    assert!(!of(Precision::Fp32).tf32);
}

/// Pixels of all tiles divided by the pixels of the picture, as docs/gpu-profiles.md states them.
#[test]
fn tiles_compute_little_more_than_the_picture() {
    use tileforge_image::Size;
    use tileforge_image::tile::{AnySize, Overlap, TilePlan};

    const PICTURES: [(u32, u32); 6] = [(512, 512), (1280, 720), (1920, 1080), (3840, 2160), (720, 1280), (1080, 1920)];
    let share = |shapes: &Shapes, (width, height): (u32, u32), radius: u32| {
        let size = Size { width, height };
        let side = |side: usize| u32::try_from(side).unwrap();
        let plan = if let Some(largest) = shapes.largest_tile {
            // RRDBNet needs more memory for each pixel, which limits its tiles.
            let pixels = if radius > 18 { 360 * 360 } else { largest.pixels() as u64 };
            let sides = AnySize { pixels, height: u32::MAX, minimum: 1, multiple: 1 };
            TilePlan::fitted(size, sides, Overlap::automatic(Some(radius), sides.square()), 4, Some(radius))
        } else {
            TilePlan::best(shapes.tiles.iter().map(|tile| {
                let tile = Size { width: side(tile.width), height: side(tile.height) };
                (TilePlan::new(size, tile, Overlap::automatic(Some(radius), tile), 4, Some(radius)), None)
            }))
        };
        plan.unwrap().pixels() as f64 / size.pixels() as f64
    };
    let document = fs::read_to_string(repository("docs/gpu-profiles.md")).unwrap();
    for (name, profile) in shipped() {
        let most = if profile.provider.is_on_processor() { 1.15 } else { 1.25 };
        for (network, radius) in [("compact-x4, 18 pixels", 18), ("RRDBNet, 96 pixels", 96)] {
            let shares = PICTURES.map(|picture| share(profile.tasks.upscale.as_ref().unwrap(), picture, radius));
            assert!(shares.iter().all(|share| *share <= most), "{name}, {network}: {shares:?}");
            let figures = shares.map(|share| format!("{share:.2}")).join(" | ");
            let kind = if profile.provider.is_on_processor() { format!("`{name}`") } else { "GPUs".into() };
            let row = format!("| {network} | {kind} | {figures} |");
            assert!(document.contains(&row), "{name}: docs/gpu-profiles.md lacks\n{row}");
        }
    }
}

#[test]
fn tiles_of_any_size_are_for_upscalers_on_processors() {
    let of = |provider: &str, tasks: &str| {
        let text = format!("name: test\nprovider: {provider}\nprecision: fp32\ntasks:\n  {tasks}\n");
        read(&text, &[]).map(|profile| profile.tasks).map_err(|error| error.to_string())
    };
    let tasks = of("cpu", "upscale: { tiles: [64x64], largest_tile: 128x96, largest_step: 1 GiB }").unwrap();
    let shapes = tasks.upscale.unwrap();
    assert_eq!(shapes.largest_tile, Some(Tile { height: 128, width: 96 }));
    assert_eq!(shapes.largest_step.unwrap().bytes, 1 << 30);
    for (tasks, expected) in [
        ("unet: { tiles: [64x64], largest_tile: 128x128 }", "expected it for task upscale"),
        ("upscale: { tiles: [64x64], largest_step: 1 GiB }", "expected `largest_tile`, too"),
        ("upscale: { tiles: [64x64], largest_tile: 32x32 }", "as many pixels as 64x64 at least, found 32x32"),
    ] {
        let error = of("cpu", tasks).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn no_two_profiles_claim_one_driver_name() {
    let profiles = shipped();
    let devices = profiles.values().filter_map(|profile| profile.device.as_ref());
    let names: Vec<&String> = devices.flat_map(|device| &device.driver_names).collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(names.len(), distinct.len(), "{names:?}");
}

#[test]
fn the_nearest_file_counts_for_each_key() {
    let t4 = Profile::read(repository("profiles/t4.yaml").to_str().unwrap()).unwrap();
    assert_eq!(t4.families, ["turing", "nvidia"]);
    // Keys of the profile, its family, and the family of that family.
    assert_eq!(t4.streams, 1);
    assert!(!t4.cuda.tf32);
    assert!(t4.cuda.nhwc);
    assert_eq!(t4.tasks.upscale.as_ref().unwrap().largest_run, Some(Tile { height: 256, width: 256 }));
    assert_eq!(t4.tensorrt.workspace.as_ref().unwrap().bytes, 4 << 30);
}

/// Reads a profile of this text, with families of these texts beside it.
fn read(text: &str, families: &[(&str, &str)]) -> Result<Profile> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("families")).unwrap();
    for (name, text) in families {
        fs::write(folder.path().join(format!("families/{name}.yaml")), text).unwrap();
    }
    let path = folder.path().join("test.yaml");
    fs::write(&path, text).unwrap();
    Profile::read(path.to_str().unwrap())
}

const GPU: &str = "name: test
gpu: A GPU
driver_names: [A GPU]
architecture: Ampere
compute_capability: 8.6
memory: 24 GB
bandwidth: 936 GB/s
provider: tensorrt
precision: fp16
tasks:
  upscale: { tiles: [64x64] }
  unet: { tiles: [64x64], batch: 2 }
streams: 2
cuda_graphs: true
tensorrt:
  builder_optimization_level: 3
cuda:
  tf32: true
floors:
  psnr_db: 50
  cosine: 0.99
";

#[test]
fn mistakes_are_named_with_their_place_and_what_was_meant() {
    read(GPU, &[]).unwrap();
    for (from, to, expected) in [
        ("streams:", "stream:", &["line 13", "column 1", "did you mean `streams`?"][..]),
        ("tf32:", "tf23:", &["line 18", "did you mean `tf32`?"]),
        ("  unet:", "  unett:", &["line 12", "did you mean `unet`?"]),
        ("fp16", "fp61", &["line 9", "did you mean `fp16`?"]),
        ("24 GB", "24 GBit", &["line 6", "units MB, MiB, GB, GiB", "`24 GBit`"]),
        ("24 GB", "24", &["line 6", "found `24`"]),
        ("936 GB/s", "936 GB", &["line 7", "GB/s, TB/s"]),
        (
            "936 GB/s",
            "936 GB/s\nchip: { multiprocessors: 0, boost_clock: 1 GHz, cache: 1 MB }",
            &["line 8", "expected 1 to 1000 multiprocessors, found 0"],
        ),
        ("8.6", "eight", &["line 5", "as in 8.9"]),
        ("[64x64] }", "[64x0] }", &["line 11", "as in 256x256, found `64x0`"]),
        ("[64x64] }", "[] }", &["line 11", "`tiles`: expected at least one"]),
        (
            "[64x64], batch: 2",
            "[64x60], batch: 2",
            &["line 12", "column", "`tiles`: expected multiples of 8, found 64x60"],
        ),
        ("batch: 2", "batch: 0", &["line 12", "`batch`: expected 1 to 64, found 0"]),
        ("batch: 2", "batch: [1, 65]", &["line 12", "`batch`: expected 1 to 64, found 65"]),
        ("batch: 2", "batch: []", &["line 12", "`batch`: expected at least one"]),
        ("batch: 2", "batch: many", &["line 12", "a number of pictures or a list of such numbers"]),
        ("batch: 2", "largest_run: big", &["line 12", "as in 256x256, found `big`"]),
        ("level: 3", "level: 99", &["builder_optimization_level", "expected 0 to 5, found 99"]),
        ("streams: 2", "streams: 0", &["line 13", "expected 1 to 16, found 0"]),
        ("precision: fp16", "precision: fp8", &["needs compute capability 8.9, found 8.6"]),
        ("capability: 8.6", "capability: 7.5", &["`cuda: tf32`: needs compute capability 8.0, found 7.5"]),
        ("cosine: 0.99", "cosine: 99", &["line 21", "expected a number from -1 to 1, found 99"]),
        ("cosine: 0.99", "cosine: 0.99\n  speed: -1", &["line 22", "expected a factor of at least 0, found -1"]),
        ("  cosine: 0.99\n", "", &["missing field `cosine`"]),
        ("cosine:", "cosin:", &["line 21", "did you mean `cosine`?"]),
        ("memory: 24 GB\n", "", &["`memory` is missing"]),
        ("provider: tensorrt", "provider: cpu", &["expected tensorrt-rtx, tensorrt or cuda in the profile of a GPU"]),
        ("gpu: A GPU\n", "", &["expected `gpu`"]),
        ("name: test", "name: other", &["expected the profile to have its file's name"]),
        ("name: test", "name: test\nextends: nobody", &["extends: nobody", "families are in that folder"]),
    ] {
        assert!(GPU.contains(from), "{from}");
        let error = read(&GPU.replace(from, to), &[]).unwrap_err().to_string();
        for words in expected {
            assert!(error.contains(words), "{to}: expected `{words}` in: {error}");
        }
    }
}

#[test]
fn a_precision_that_the_machine_lacks_is_refused_with_what_it_has() {
    use Precision::{Bf16, Fp8, Fp16, Fp16Weights, Fp32, Int8, Int8Weights};
    let with = |name: &str, precision: Precision| {
        let mut profile = Profile::read(repository(&format!("profiles/{name}.yaml")).to_str().unwrap()).unwrap();
        profile.set_precision(precision).map(|()| profile)
    };
    for (name, precision, expected, has) in [
        ("rtx3080", Fp8, "needs compute capability 8.9, found 8.6", vec![Fp32, Fp16, Bf16, Int8]),
        ("t4", Bf16, "needs compute capability 8.0, found 7.5", vec![Fp32, Fp16, Int8]),
        ("cpu", Fp8, "do not compute in it", vec![Fp32, Fp16, Int8, Fp16Weights, Int8Weights]),
        ("cpu", Bf16, "ONNX Runtime's CPU kernels", vec![Fp32, Fp16, Int8, Fp16Weights, Int8Weights]),
        ("rtx3080", Int8Weights, "are for processors", vec![Fp32, Fp16, Bf16, Int8]),
        ("rtx", Fp16Weights, "are for processors", vec![Fp32, Fp16, Bf16, Int8]),
    ] {
        let error = with(name, precision).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(error, Error::Precision { possible, .. } if possible == has), "{name} {precision}");
    }
    assert_eq!(with("rtx4090", Fp8).unwrap().floors, Floors::expected_of(Fp8));
}

/// The batches of every tile, as docs/gpu-profiles.md states them.
#[test]
fn tiles_have_the_batches_of_the_document() {
    let document = fs::read_to_string(repository("docs/gpu-profiles.md")).unwrap();
    let columns = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = document.lines().skip_while(|line| !line.starts_with("| profiles | 64x64 |")).map(columns);
    let tiles: Vec<Tile> = rows.next().unwrap()[1..].iter().map(|tile| tile.parse().unwrap()).collect();
    let profiles = shipped();
    let mut documented = 0;
    for row in rows.skip(1).take_while(|row| row.len() > 1) {
        for name in row[0].split(", ").map(|name| name.trim_matches('`')) {
            let shapes = profiles[name].tasks.upscale.as_ref().unwrap();
            for (tile, expected) in tiles.iter().zip(&row[1..]) {
                let batches: Vec<String> = shapes.batches_of(*tile).map(|batch| batch.to_string()).collect();
                let found = if shapes.tiles.contains(tile) { batches.join(", ") } else { "–".into() };
                assert_eq!(&found, expected, "{name}: {tile}");
            }
            documented += 1;
        }
    }
    assert_eq!(documented, profiles.len());
}

#[test]
fn families_in_a_circle_are_named() {
    let error = read("name: test\nextends: a", &[("a", "name: a\nextends: b"), ("b", "name: b\nextends: a")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("`extends: a` is circular: a → b → a"), "{error}");
    let error = read("name: test\nextends: a", &[("a", "name: a\nextends: a")]).unwrap_err().to_string();
    assert!(error.contains("circular: a → a"), "{error}");
    // The error names the file at fault, not the requested file.
    let error = read("name: test\nextends: a", &[("a", "name: a\nstreems: 1")]).unwrap_err().to_string();
    assert!(error.contains("families/a.yaml") && error.contains("did you mean `streams`?"), "{error}");
}

#[test]
fn options_have_the_providers_names() {
    let profile = read(GPU, &[]).unwrap();
    let options = profile.tensorrt_options();
    assert_eq!(options["trt_builder_optimization_level"], "3");
    assert_eq!(options["trt_cuda_graph_enable"], "1");
    // The precision is in the graph: the provider's switches would change what was measured.
    assert!(
        !options.keys().any(|name| name.contains("fp16") || name.contains("int8") || name.contains("bf16")),
        "{options:?}"
    );
    assert_eq!(profile.cuda_options()["use_tf32"], "1");
}

/// What was gated in FP32 runs in FP32, and kernels that are computed from other weights keep their layout.
#[test]
fn options_of_cuda_follow_the_precision() {
    let given = GPU.replace("  tf32: true\n", "  tf32: true\n  nhwc: true\n");
    let mut profile = read(&given, &[]).unwrap();
    for (precision, tf32, nhwc) in [
        (Precision::Fp32, "0", "1"),
        (Precision::Fp16, "1", "1"),
        (Precision::Bf16, "1", "1"),
        (Precision::Int8, "1", "0"),
        (Precision::Fp8, "1", "0"),
        (Precision::Fp16Weights, "0", "0"),
        (Precision::Int8Weights, "0", "0"),
    ] {
        profile.precision = precision;
        let options = profile.cuda_options();
        assert_eq!((options["use_tf32"].as_str(), options["prefer_nhwc"].as_str()), (tf32, nhwc), "{precision}");
        assert_eq!(profile.plan_options().tf32, tf32 == "1", "{precision}");
    }
}

#[test]
fn a_gpu_is_known_by_its_name_and_its_capability() {
    let profiles: Vec<Profile> = shipped().into_values().collect();
    let of = |name: &str, capability: &str| {
        let (name, compute_capability) = (name.into(), capability.into());
        let gpu = tileforge_session::Gpu { name, compute_capability, memory_bytes: 47_800_000_000 };
        find::of_gpu(&gpu, &profiles).name
    };
    assert_eq!(of("NVIDIA L4", "8.9"), "l4");
    assert_eq!(of("NVIDIA L40S", "8.9"), "l40s");
    assert_eq!(of("NVIDIA GeForce RTX 4090", "8.9"), "rtx4090");
    // A laptop's GPU has a similar name but another chip. Plans for its family run on it.
    assert_eq!(of("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"), "rtx");
    for (name, capability) in
        [("NVIDIA GeForce RTX 4080", "8.9"), ("NVIDIA GeForce RTX 4090", "8.6"), ("NVIDIA A40", "8.6")]
    {
        assert_eq!(of(name, capability), "rtx", "{name}");
    }
    // Other GPUs get the profile of a GPU with the same compute capability.
    assert_eq!([of("NVIDIA GeForce RTX 2080 Ti", "7.5"), of("NVIDIA A30", "8.0")], ["t4", "a100"]);
    // Of two profiles, the one with no more memory than this GPU.
    assert_eq!(of("NVIDIA GH200 480GB", "9.0"), "h100");
    // No profile suits these GPUs.
    assert_eq!([of("NVIDIA GeForce GTX 1080", "6.1"), of("Quadro", "?"), of("NVIDIA Z9", "13.0")], ["cpu"; 3]);
}

#[test]
fn floors_are_those_of_the_precision() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("families")).unwrap();
    for entry in repository("profiles/families").read_dir().unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join("families").join(path.file_name().unwrap())).unwrap();
    }
    let rtx4090 = fs::read_to_string(repository("profiles/rtx4090.yaml")).unwrap();
    let read = |more: &str| {
        let path = folder.path().join("rtx4090.yaml");
        fs::write(&path, format!("{rtx4090}\n{more}")).unwrap();
        Profile::read(path.to_str().unwrap()).unwrap()
    };
    assert_eq!(read("").floors, Floors::expected_of(Precision::Fp16));
    // BF16 cannot reach FP16's 60 dB.
    assert_eq!(read("precision: bf16").floors, Floors::expected_of(Precision::Bf16));
    let own = read("precision: bf16\nfloors: { psnr_db: 45, cosine: 0.99 }").floors;
    assert_eq!(own, Floors { psnr_db: 45.0, cosine: 0.99, speed: 1.0 });
}

#[test]
fn every_network_takes_the_sizes_of_every_profile() {
    let mut checked = 0;
    for (name, profile) in shipped() {
        for entry in tileforge_exporter::arch::registry() {
            for (preset, network) in entry.presets() {
                let contract = network.contract();
                let Some(shapes) = profile.shapes_for(contract.task) else { continue };
                let first = contract.inputs.iter().find_map(|input| Some((input.height()?, input.width()?)));
                let Some((height, width)) = first else { continue };
                for tile in &shapes.tiles {
                    let fits = height.size(tile.height).is_some() && width.size(tile.width).is_some();
                    // The window size of a transformer comes from its training, so such sizes are padded.
                    let windows = contract.task == Task::Upscale;
                    assert!(fits || windows, "{name}: {} {preset} does not take {tile}: {height}, {width}", entry.name);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

/// A photo is scaled so that its shorter side has 518 pixels, and the longer one is rounded to a multiple of 14.
#[test]
fn every_profile_has_depth_for_photos_of_usual_proportions() {
    for (name, profile) in shipped() {
        let tiles = profile.tasks.depth.unwrap_or_else(|| panic!("{name}")).tiles;
        for (long, short) in [(1.0, 1.0), (4.0, 3.0), (3.0, 2.0), (16.0, 9.0)] {
            let longer = (518.0_f64 * long / short / 14.0).round_ties_even() as usize * 14;
            for tile in [Tile { height: 518, width: longer }, Tile { height: longer, width: 518 }] {
                assert!(tiles.contains(&tile), "{name}: {tile}");
            }
        }
    }
}
