//! Another user on the same machine, who can write in the folder that a program writes in, such as `/tmp`, and knows
//! the names that it will use. These tests need a user who may change the owner of files.

use end_to_end::{
    Answer, LocalRegistry, Outcome, ScriptedServer, command, copy_folder, demo_engine, names_in, run, words,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user ID of the other user.
const NEIGHBOUR: u32 = 12_345;

fn give_away(path: &Path) {
    chown(path, Some(NEIGHBOUR), Some(NEIGHBOUR))
        .unwrap_or_else(|error| panic!("{error}; run the tests as root, or with `unshare --map-auto -r`"));
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A folder with the permissions of `/tmp`.
fn shared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// A trap: the words of the refusal, and a function that sets it.
type Trap = (&'static str, Box<dyn Fn()>);

/// What another user can place where a program keeps a partial download, each with the words of the refusal.
fn traps(part: &Path, victim: &Path) -> Vec<Trap> {
    let own = |path: &Path| path.to_owned();
    let (a, b, c, d, e) = (own(part), own(part), own(part), own(part), own(part));
    let victim = own(victim);
    let gone = victim.with_file_name("gone");
    vec![
        ("found a link", Box::new(move || symlink(&victim, &a).unwrap())),
        ("found a link", Box::new(move || symlink(&gone, &b).unwrap())),
        ("found a named pipe", Box::new(move || pipe(&c))),
        (
            "of the user with the number 12345",
            Box::new(move || {
                fs::create_dir(&d).unwrap();
                fs::set_permissions(&d, fs::Permissions::from_mode(0o777)).unwrap();
                give_away(&d);
            }),
        ),
        (
            "found a file",
            Box::new(move || {
                fs::write(&e, "x").unwrap();
                give_away(&e);
            }),
        ),
    ]
}

/// Runs a download with each of the traps, and then without one.
fn fall_into(folder: &Path, part: &Path, run: &dyn Fn() -> Outcome) {
    let victim = tempfile::tempdir().unwrap();
    let precious = victim.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis"), "x").unwrap();
    for (words, set) in traps(part, &precious) {
        set();
        let before = names_in(folder);
        let _ = run().failure(1, &[".part", "expected a folder of your own", words, "remove it"]);
        assert_eq!((names_in(folder), names_in(victim.path())), (before, vec!["precious".to_owned()]));
        assert_eq!(names_in(&precious), ["thesis"]);
        let kind = part.symlink_metadata().unwrap();
        if kind.is_dir() { fs::remove_dir(part).unwrap() } else { fs::remove_file(part).unwrap() }
    }
    let _ = run().success();
}

#[test]
fn a_pull_into_a_shared_folder_takes_nothing_of_a_neighbour() {
    let (work, folder) = (tempfile::tempdir().unwrap(), shared());
    let registry = LocalRegistry::start(false);
    let reference = registry.reference("compact");
    let _ = run("engine-builder", words(&[&"push", &demo_engine(), &reference])).success();
    let (output, part) = (folder.path().join("engine"), folder.path().join("engine.part"));
    let pull = || {
        let line = words(&[&"pull", &reference, &"-o", &output]);
        Outcome::of(command("runtime", line).env("DOCKER_CONFIG", work.path()))
    };
    fall_into(folder.path(), &part, &pull);
    let mine = fs::metadata(work.path()).unwrap().uid();
    for name in names_in(&output) {
        let found = fs::symlink_metadata(output.join(&name)).unwrap();
        assert_eq!((found.uid(), found.nlink(), found.mode() & 0o022), (mine, 1, 0), "{name}");
    }
    // A file that the other user owns, in a folder that now belongs to the user.
    fs::remove_dir_all(&output).unwrap();
    let weights = demo_engine().join("model.weights");
    let digest = tileforge_engine::digest::sha256_file(&weights).unwrap().sha256;
    fs::create_dir(&part).unwrap();
    let theirs = part.join(format!("sha256-{digest}"));
    fs::copy(&weights, &theirs).unwrap();
    give_away(&theirs);
    let _ = pull().success();
    assert_eq!(fs::metadata(output.join("model.weights")).unwrap().uid(), mine);
}

/// The model file of a model with one file, which a server provides.
fn model(work: &Path, port: u16) -> PathBuf {
    let path = work.join("small.yaml");
    let text = format!(
        "name: small\ndescription: A test.\nlicence: MIT\nprovenance: Here.\n\
         source: {{ folder: 'http://127.0.0.1:{port}/' }}\nfiles: {{ model.pth: {{}} }}\ntask: upscale\n\
         architecture: SRVGGNetCompact\ncheckpoint: model.pth\nhyperparameters: {{ filters: 12, scale: 4 }}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_fetch_into_a_shared_folder_takes_nothing_of_a_neighbour() {
    let (work, folder) = (tempfile::tempdir().unwrap(), shared());
    let server = ScriptedServer::start(None, |_, _| Answer { body: b"weights".to_vec(), ..Answer::status("200 OK") });
    let (path, here) = (model(work.path(), server.port), folder.path().join("small"));
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o1777)).unwrap();
    let fetch = || Outcome::of(&mut command("engine-builder", words(&[&"fetch", &path, &"--into", &folder.path()])));
    fall_into(&here, &here.join("model.pth.part"), &fetch);
    assert_eq!(fs::read(here.join("model.pth")).unwrap(), b"weights");
    // The record of the digest does not follow a link either.
    let victim = work.path().join("victim");
    for name in ["model.pth", "model.pth.sha256"] {
        fs::remove_file(here.join(name)).unwrap();
    }
    symlink(&victim, here.join("model.pth.sha256")).unwrap();
    let _ = fetch().success();
    assert!(!victim.exists() && here.join("model.pth.sha256").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_fetch_does_not_leave_encryption_and_takes_no_empty_file() {
    let work = tempfile::tempdir().unwrap();
    let authority = end_to_end::Authority::new();
    let certificate = authority.sign("IP:127.0.0.1");
    let open = ScriptedServer::start(None, |_, _| Answer { body: b"weights".to_vec(), ..Answer::status("200 OK") });
    let port = open.port;
    let secure = ScriptedServer::start(Some(&certificate), move |_, _| {
        Answer::status("302 Found").with("Location", format!("http://127.0.0.1:{port}/model.pth"))
    });
    let path = model(work.path(), secure.port);
    let text = fs::read_to_string(&path).unwrap().replace("http:", "https:");
    fs::write(&path, text).unwrap();
    let fetch = |path: &Path| {
        let line = words(&[&"fetch", &path, &"--into", &work.path().join("weights")]);
        Outcome::of(command("engine-builder", line).env("SSL_CERT_FILE", authority.certificate()))
    };
    let _ = fetch(&path).failure(1, &["it sends its clients on to", "nothing is encrypted"]);
    assert!(open.asked().is_empty());
    let nothing = ScriptedServer::start(None, |_, _| {
        Answer::status("416 Range Not Satisfiable").with("Content-Range", "bytes */0")
    });
    let _ = fetch(&model(work.path(), nothing.port)).failure(1, &["found the answer 416"]);
    assert!(names_in(&work.path().join("weights/small")).is_empty());
}

#[test]
fn an_unpacked_engine_shares_no_file_of_a_neighbour() {
    let work = tempfile::tempdir().unwrap();
    let (theirs, archive, engine) =
        (work.path().join("engines/theirs"), work.path().join("engine.tar"), work.path().join("engines/mine"));
    copy_folder(demo_engine(), &theirs);
    let _ = run("engine-builder", words(&[&"pack", &demo_engine(), &"-o", &archive])).success();
    names_in(&theirs).iter().for_each(|name| give_away(&theirs.join(name)));
    let folder = work.path().join("engines");
    for program in ["runtime", "engine-builder"] {
        let _ = run(program, words(&[&"unpack", &archive, &"-o", &engine, &"--share", &folder])).success();
        for name in names_in(&engine) {
            let found = fs::metadata(engine.join(&name)).unwrap();
            assert_eq!((found.nlink(), found.uid()), (1, fs::metadata(work.path()).unwrap().uid()), "{name}");
        }
        fs::remove_dir_all(&engine).unwrap();
    }
}
