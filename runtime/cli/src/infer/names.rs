//! Names of outputs: templates and defaults.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::super::failure::Failure;

/// The values for names, besides the input.
pub(super) struct Naming<'n> {
    /// The engine's name.
    pub(super) engine: String,
    /// The scale of the results; `None` for engines that do not enlarge.
    pub(super) scale: Option<String>,
    /// The default suffix of an output's name: "depth".
    pub(super) suffix: String,
    /// The ending of an input's output.
    pub(super) ending: &'n dyn Fn(&Path) -> OsString,
}

impl Naming<'_> {
    /// The output beside its input: `photo.jpg` becomes `photo-x4.jpg`.
    pub(super) fn beside(&self, input: &Path) -> PathBuf {
        let mut name = input.file_stem().unwrap_or(OsStr::new("picture")).to_owned();
        name.push("-");
        name.push(&self.suffix);
        name.push(".");
        name.push((self.ending)(input));
        input.with_file_name(name)
    }

    /// The folder beside one of inputs: `photos` becomes `photos-x4`.
    pub(super) fn folder_beside(&self, input: &Path) -> PathBuf {
        // `.` and `..` have no name of their own.
        let real = match input.file_name() {
            Some(_) => input.to_owned(),
            None => input.canonicalize().unwrap_or_else(|_| input.to_owned()),
        };
        let mut name = real.file_name().unwrap_or(OsStr::new("pictures")).to_owned();
        name.push("-");
        name.push(&self.suffix);
        real.with_file_name(name)
    }

    /// The input's own name with the ending of the output.
    pub(super) fn same(&self, input: &Path) -> PathBuf {
        let mut name = input.file_stem().unwrap_or_default().to_owned();
        name.push(".");
        name.push((self.ending)(input));
        name.into()
    }

    /// The name that a template gives.
    fn filled(&self, template: &OsStr, input: &Path) -> Result<OsString, Failure> {
        let refused = |problem: String| Failure::Usage(format!("{}: {problem}", template.display()));
        let (mut name, mut rest) = (Vec::new(), template.as_encoded_bytes());
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'{' | b'}')) {
            name.extend(&rest[..at]);
            // Two braces stand for one.
            if rest.get(at + 1) == Some(&rest[at]) {
                name.push(rest[at]);
                rest = &rest[at + 2..];
                continue;
            }
            let end = rest[at..].iter().position(|&byte| byte == b'}').filter(|_| rest[at] == b'{');
            let end = at + end.ok_or_else(|| refused("a brace stands alone; {{ and }} mean a brace".into()))?;
            match &rest[at + 1..end] {
                b"stem" => name.extend(input.file_stem().unwrap_or_default().as_encoded_bytes()),
                b"extension" => name.extend((self.ending)(input).as_encoded_bytes()),
                b"engine" => name.extend(self.engine.replace('/', "-").bytes()),
                b"scale" => match &self.scale {
                    Some(scale) => name.extend(scale.bytes()),
                    None => return Err(refused("{scale} is for engines that enlarge pictures".into())),
                },
                other => {
                    return Err(refused(format!(
                        "{{{}}} is not known; known are {{stem}}, {{extension}}, {{scale}} and {{engine}}",
                        String::from_utf8_lossy(other)
                    )));
                }
            }
            rest = &rest[end + 1..];
        }
        name.extend(rest);
        Ok(tileforge_files::from_bytes(name))
    }

    /// The output of an input in `within` (of the folder that was given) by a template.
    pub(super) fn by_template(&self, template: &Path, input: &Path, within: &Path) -> Result<PathBuf, Failure> {
        let folder = template.parent().map_or(OsStr::new(""), Path::as_os_str);
        let folder = PathBuf::from(self.filled(folder, input)?);
        let name = self.filled(template.file_name().unwrap_or_default(), input)?;
        Ok(folder.join(within).join(name))
    }
}

/// Whether a name has a place to fill, and no file or folder has exactly this name.
pub(super) fn is_template(output: &Path) -> bool {
    output.as_os_str().as_encoded_bytes().contains(&b'{') && !output.exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn with<T>(test: impl FnOnce(&Naming<'_>) -> T) -> T {
        let ending = |input: &Path| if input.extension() == Some("bmp".as_ref()) { "png".into() } else { "jpg".into() };
        let (engine, scale) = ("real/esrgan".into(), Some("4".into()));
        test(&Naming { engine, scale, suffix: "x4".into(), ending: &ending })
    }

    #[test]
    fn names_say_what_was_done() {
        with(|naming| {
            assert_eq!(naming.beside(Path::new("a/photo.jpg")), Path::new("a/photo-x4.jpg"));
            assert_eq!(naming.beside(Path::new("photo.v2.bmp")), Path::new("photo.v2-x4.png"));
            assert_eq!(naming.beside(Path::new("ph\u{f6}to")), Path::new("ph\u{f6}to-x4.jpg"));
            assert_eq!(naming.folder_beside(Path::new("photos/")), Path::new("photos-x4"));
            assert_eq!(naming.folder_beside(Path::new("a/photos")), Path::new("a/photos-x4"));
            let here = std::env::current_dir().unwrap();
            assert_eq!(naming.folder_beside(Path::new(".")).parent(), here.canonicalize().unwrap().parent());
            assert_eq!(naming.same(Path::new("a/b.bmp")), Path::new("b.png"));
        });
    }

    #[test]
    fn templates_are_filled() {
        let filled = |template: &str, input: &str, within: &str| {
            with(|naming| naming.by_template(Path::new(template), Path::new(input), Path::new(within)))
        };
        let ok = |template, input, within| filled(template, input, within).unwrap();
        assert_eq!(ok("{stem}-x{scale}.{extension}", "p/a.b.bmp", ""), Path::new("a.b-x4.png"));
        assert_eq!(ok("out/{engine}/{stem}.png", "a.bmp", "sub/deep"), Path::new("out/real-esrgan/sub/deep/a.png"));
        assert_eq!(ok("{{{stem}}}.png", "a.bmp", ""), Path::new("{a}.png"));
        // A name with braces is not filled again.
        assert_eq!(ok("{stem}.png", "{scale}.bmp", ""), Path::new("{scale}.png"));
        let bytes = OsStr::from_bytes(b"\xff.bmp");
        let odd = with(|naming| naming.by_template(Path::new("{stem}!.png"), Path::new(bytes), Path::new("")));
        assert_eq!(odd.unwrap().as_os_str().as_bytes(), b"\xff!.png");
        for wrong in ["{", "}", "a{stem", "{name}.png", "{}.png", "{ stem }.png", "{stem}}.png"] {
            assert!(matches!(filled(wrong, "a.bmp", ""), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
