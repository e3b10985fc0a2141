//! How much memory the control groups of this process still allow: the limits of containers and services.
//!
//! Version 2: <https://docs.kernel.org/admin-guide/cgroup-v2.html>, section "Memory Interface Files". Version 1:
//! <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>. Each group above the process's own can have a limit,
//! too.

use std::fs;
use std::path::Path;

/// Bytes that the tightest group still allows; `None`: no group has a limit.
pub(super) fn left() -> Option<u64> {
    of(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The names of a version's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// A counter of memory.stat: pages of files, which the system takes back before it refuses memory.
    reclaimable: &'static str,
}

const VERSION_2: Files = Files { limit: "memory.max", used: "memory.current", reclaimable: "inactive_file" };
const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", reclaimable: "total_inactive_file" };

/// The least bytes left in the groups of `/proc/self/cgroup`, which are mounted at `mount`.
fn of(mount: &Path, groups: &str) -> Option<u64> {
    let memory = groups.lines().filter_map(|line| {
        // "0::/user.slice" in version 2, "5:cpu,memory:/docker/0123" in version 1.
        let [_, controllers, group] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let group = group.trim_start_matches('/');
        match controllers {
            "" => Some((mount.to_owned(), group, VERSION_2)),
            _ if controllers.split(',').any(|name| name == "memory") => Some((mount.join("memory"), group, VERSION_1)),
            _ => None,
        }
    });
    // In a container, the mount may show the container's own group as its root, while the path is relative to the
    // host.
    memory.filter_map(|(root, group, files)| files.least(&root, group)).min()
}

impl Files {
    /// The least bytes left in a group and in the groups above it, up to `root`.
    fn least(&self, root: &Path, group: &str) -> Option<u64> {
        let whole = root.join(group);
        let above = whole.ancestors().take(1 + Path::new(group).components().count());
        above.filter_map(|group| self.left(group)).min()
    }

    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        // Without a limit, version 2 has "max", and version 1 a number near 2^63.
        let limit = number(self.limit).filter(|limit| *limit < 1 << 60)?;
        let used = number(self.used)?;
        let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let reclaimable = statistics.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == self.reclaimable).then(|| value.trim().parse::<u64>().ok())?
        });
        Some(limit.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }

    #[test]
    fn the_tightest_group_counts() {
        let mount = tempfile::tempdir().unwrap();
        let (slice, service) = (mount.path().join("system.slice"), mount.path().join("system.slice/a:b.service"));
        let groups = "0::/system.slice/a:b.service\n";
        assert_eq!(of(mount.path(), groups), None);
        write(&service, &[("memory.max", "max\n"), ("memory.current", "70\n")]);
        assert_eq!(of(mount.path(), groups), None);
        write(&slice, &[("memory.max", "1000\n"), ("memory.current", "400\n")]);
        assert_eq!(of(mount.path(), groups), Some(600));
        write(&service, &[("memory.max", "300\n"), ("memory.stat", "anon 20\ninactive_file 50\n")]);
        assert_eq!(of(mount.path(), groups), Some(280));
        // More is in use than allowed: the limit was lowered.
        write(&service, &[("memory.max", "10\n")]);
        assert_eq!(of(mount.path(), groups), Some(0));
        write(&service, &[("memory.max", "ten\n")]);
        assert_eq!(of(mount.path(), groups), Some(600));
    }

    #[test]
    fn version_1_has_a_folder_for_memory() {
        let mount = tempfile::tempdir().unwrap();
        let groups = "7:cpu,cpuacct:/docker/0\n5:memory:/docker/0\nnonsense\n";
        let none = "9223372036854771712\n";
        write(&mount.path().join("memory"), &[("memory.limit_in_bytes", none), ("memory.usage_in_bytes", "1\n")]);
        assert_eq!(of(mount.path(), groups), None);
        // A container's own group is the root of what it sees.
        let files = [("memory.limit_in_bytes", "500"), ("memory.usage_in_bytes", "200")];
        write(&mount.path().join("memory"), &files);
        write(&mount.path().join("memory"), &[("memory.stat", "inactive_file 7\ntotal_inactive_file 100\n")]);
        assert_eq!(of(mount.path(), groups), Some(400));
    }
}
