//! Physical cores of the processors that this process may use, and their model.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

/// The physical cores that the calling thread may use, where the system tells.
pub(crate) fn physical() -> Option<usize> {
    sched_getaffinity(None).map(|set| cores_of(&set, Path::new(TOPOLOGY))).ok()
}

/// The processor's model, where the system tells.
pub(crate) fn model() -> Option<String> {
    // See proc_cpuinfo(5).
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map(|(_, name)| name.trim().to_owned())
}

/// A folder `cpuN` for each processor: sysfs-devices-system-cpu in the kernel's documentation.
const TOPOLOGY: &str = "/sys/devices/system/cpu";

/// The number of cores of the processors in `set`.
fn cores_of(set: &CpuSet, topology: &Path) -> usize {
    let core = |cpu: usize| {
        let folder = topology.join(format!("cpu{cpu}/topology"));
        // The processors of one core have the same list; older kernels have it under the second name.
        let names = ["core_cpus_list", "thread_siblings_list"].map(|name| folder.join(name));
        names.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_else(|| cpu.to_string())
    };
    let cores: BTreeSet<String> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(core).collect();
    cores.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_one_core_are_one() {
        let folder = tempfile::tempdir().unwrap();
        // Two cores of two processors each, and one whose list is under the older name. Processor 5 has no list.
        for (cpu, name, list) in [
            (0, "core_cpus_list", "0,2\n"),
            (1, "core_cpus_list", "1,3\n"),
            (2, "core_cpus_list", "0,2\n"),
            (3, "core_cpus_list", "1,3\n"),
            (4, "thread_siblings_list", "4\n"),
        ] {
            let topology = folder.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join(name), list).unwrap();
        }
        let cores = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            cores_of(&set, folder.path())
        };
        assert_eq!([cores(&[0, 2]), cores(&[0, 1]), cores(&[0, 1, 2, 3]), cores(&[0, 1, 2, 3, 4, 5])], [1, 2, 2, 4]);
    }
}
