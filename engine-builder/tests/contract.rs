//! What the exporter writes about a graph is what the runtime reads.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use tileforge_exporter::ReceptiveField;
use tileforge_exporter::arch::registry;
use tileforge_runtime::engine::manifest::Interface;

#[test]
fn every_contract_becomes_the_same_interface() {
    for entry in registry() {
        for (preset, network) in entry.presets() {
            let contract = network.contract();
            let Some(contract) = contract.upscale() else {
                let refused = Interface::from_metadata(&network.contract().metadata()).unwrap_err().to_string();
                assert!(refused.contains(&format!("\"{}\"", entry.task)), "{refused}");
                continue;
            };
            let interface = Interface::from_metadata(&network.contract().metadata())
                .unwrap_or_else(|e| panic!("{} {preset}: {e}", entry.name));
            assert_eq!(interface.task.name(), entry.task.to_string());
            assert_eq!((interface.input.as_str(), interface.output.as_str()), (contract.input, contract.output));
            assert_eq!((interface.scale as usize, interface.channels as usize), (contract.scale, contract.channels));
            assert_eq!((interface.range[0], interface.range[1]), contract.range);
            let sizes = (interface.size_multiple as usize, interface.size_minimum as usize);
            assert_eq!(sizes, (contract.size_multiple, contract.size_minimum));
            assert_eq!(interface.padding.name(), contract.padding.to_string());
            let receptive_field = match contract.receptive_field {
                ReceptiveField::Radius(pixels) => Some(pixels as u32),
                ReceptiveField::Unbounded => None,
            };
            assert_eq!(interface.receptive_field, receptive_field, "{} {preset}", entry.name);
            let precisions: Vec<&str> = interface.safe_precisions.iter().map(|precision| precision.name()).collect();
            assert_eq!(precisions, contract.safe_precisions.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
    }
}
