//! Where a picture ends in a JPEG file.

use super::*;

/// Bytes that look like noise, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn baseline() -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("picture.jpg");
    let header = header(60, 50, Colour::Rgb, Depth::Eight);
    write(&path, Format::Jpeg, &header, &noise(60 * 50 * 3)).unwrap();
    fs::read(path).unwrap()
}

/// Several scans, with tables between them.
fn progressive() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/images/progressive.jpg")).unwrap()
}

/// With restart markers in its scan.
fn restarting() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/images/restarts.jpg")).unwrap()
}

#[test]
fn what_follows_a_picture_changes_nothing() {
    for picture in [baseline(), progressive(), restarting()] {
        let expected = read_bytes("plain.jpg", &picture).unwrap();
        // A film after a photo, with all kinds of markers in it.
        let film = noise(3 << 20);
        assert!([[0xff, 0xda], [0xff, 0xd9]].iter().all(|marker| film.windows(2).any(|pair| pair == marker)));
        // The other pictures of an MPO file; the start of another scan, and of one that ends.
        let tails: [&[u8]; 6] =
            [&film, &baseline(), &progressive(), b"\xff\xda", b"\xff\xda\0\x02\xff\xd9", b"\0\0\xff\xd8\xff"];
        for (number, tail) in tails.into_iter().enumerate() {
            assert!(read_bytes("long.jpg", &[&picture, tail].concat()).unwrap() == expected, "{number}");
        }
    }
}

#[test]
fn a_thumbnail_is_not_the_end() {
    let (picture, thumbnail) = (baseline(), progressive());
    let segment = [b"\xff\xe1".to_vec(), (thumbnail.len() as u16 + 2).to_be_bytes().to_vec(), thumbnail].concat();
    let with_thumbnail = [&picture[..2], &segment, &picture[2..]].concat();
    assert!(read_bytes("photo.jpg", &with_thumbnail).unwrap() == read_bytes("plain.jpg", &picture).unwrap());
    for length in (0..with_thumbnail.len()).step_by(13) {
        assert!(message(read_bytes("cut.jpg", &with_thumbnail[..length])).contains("cut.jpg: "), "cut at {length}");
    }
}

#[test]
fn every_cut_is_refused() {
    for picture in [baseline(), progressive(), restarting()] {
        for length in (0..picture.len()).step_by(7).chain(picture.len() - 8..picture.len()) {
            assert!(
                message(read_bytes("cut.jpg", &picture[..length])).contains("cut.jpg: "),
                "cut at {length} of {}",
                picture.len()
            );
        }
    }
}

#[test]
fn markers_may_be_filled_up() {
    let picture = baseline();
    let (start, end) = picture.split_at(picture.len() - 2);
    let filled = [&start[..2], b"\xff\xff\xff", &start[2..], b"\xff\xff", end].concat();
    assert!(read_bytes("filled.jpg", &filled).unwrap() == read_bytes("plain.jpg", &picture).unwrap());
}
