//! What a program that ends at once removes. The test has a process of its own, because nothing can be made
//! afterwards.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tileforge_files::{Kept, unfinished};

#[test]
fn everything_unfinished_goes_and_nothing_is_finished_any_more() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().to_owned();
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let folder = unfinished::folder_in(&path).unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        let inside = folder.path().join("inner");
        let (done, written) = (&done, &written);
        // A thread that writes into the folder while it is removed.
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let number = written.fetch_add(1, Ordering::Relaxed);
                let _ = fs::write(inside.join(number.to_string()), "x");
            }
        });
        let (file, finished) = (unfinished::file_in(&path, 0o666).unwrap(), unfinished::file_in(&path, 0o666).unwrap());
        finished.rename(&path.join("finished")).unwrap();
        fs::write(path.join("mine"), "x").unwrap();
        let beside = |name: &str| Kept::beside(&path.join(name), || false).unwrap();
        // A folder with content stays for the next program, and an empty one is removed.
        let (some, none) = (beside("some"), beside("none"));
        some.write("layer", b"x").unwrap();
        assert!(Kept::beside(&path.join("none"), || false).is_err() && path.join("none.part").exists());
        while written.load(Ordering::Relaxed) < 100 {
            thread::yield_now();
        }
        unfinished::abandon_all();
        // These threads wait for the end of the process.
        let place = path.join("late");
        thread::spawn(move || file.rename(&place));
        let place = path.clone();
        thread::spawn(move || drop(unfinished::folder_in(&place)));
        let inner = folder.path().join("again/inner");
        thread::spawn(move || unfinished::create_folders(&inner));
        // Long enough for all threads to do what they must not do.
        thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::Relaxed);
        std::mem::forget((folder, some, none));
    });
    let mut names: Vec<_> =
        path.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["finished", "mine", "some.part"]);
}
