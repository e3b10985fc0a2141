#!/usr/bin/env python3
"""Writes crates/image/src/reader/fogra39.rs: the colours of inks on coated paper, for CMYK without a colour profile.

    sudo apt install argyll icc-profiles-free
    python3 -m venv target/cmyk-venv && target/cmyk-venv/bin/pip install numpy scipy pillow
    target/cmyk-venv/bin/python scripts/cmyk_table.py [/usr/share/color/icc/FOGRA39L.ti3]

Argyll makes a colour profile from the measurements FOGRA39L. Its colours are those of relative colorimetric conversion
to sRGB with black point compensation. Three places of each ink are tabled, 81 colours, with linear interpolation
between them in sRGB's encoding, and a curve for each ink says where an amount lies between these places. The 16
colours of no ink and full ink are the profile's own. The others and the curves are fitted to the profile by least
squares of CIE94 on a grid of 9 amounts of each ink. Values below 0 and above white, outside of sRGB, are those that
suit the interpolation: they are cut off after it.

Printed is how far the table is from the profile on other grids in CIEDE2000, and what Little CMS (in Pillow) makes of
some inks with this profile: crates/image/src/reader/tests/profiles.rs has these numbers. Takes a minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import scipy.linalg
import scipy.optimize
import scipy.sparse
from PIL import Image, ImageCms

ROOT = Path(__file__).resolve().parent.parent
MEASUREMENTS = Path("/usr/share/color/icc/FOGRA39L.ti3")
OUTPUT = ROOT / "crates" / "image" / "src" / "reader" / "fogra39.rs"
# Per cent of ink that a printer may put on one place. It decides which black counts as the profile's: with this limit,
# full black becomes (31, 31, 29). ISO Coated v2 300 %, a profile of the same measurements, has the same limit.
INK_LIMIT = 300
# inks.rs counts on three.
PLACES = 3
# The value that stands for white.
UNIT = 10_000
WHITE = numpy.array([0.9642, 1.0, 0.8249])
# From D50 (ICC.1:2022) to linear sRGB (IEC 61966-2-1), by Bradford's adaptation.
TO_SRGB = numpy.linalg.inv(
    numpy.array(
        [[0.4360747, 0.3850649, 0.1430804], [0.2225045, 0.7168786, 0.0606169], [0.0139322, 0.0971045, 0.7141733]]
    )
)
# Amounts of cyan, magenta, yellow and black, of 255.
EXAMPLES = (
    (0, 0, 0, 0),
    (255, 0, 0, 0),
    (0, 255, 0, 0),
    (0, 0, 255, 0),
    (0, 0, 0, 255),
    (0, 255, 255, 0),
    (255, 0, 255, 0),
    (255, 255, 0, 0),
    (255, 255, 255, 255),
    (0, 0, 0, 128),
    (55, 127, 127, 0),
    (128, 102, 102, 26),
    (20, 90, 110, 10),
    (200, 200, 200, 0),
    (200, 150, 60, 40),
)


def encoded(light):
    """sRGB's encoding, continued below 0 and above 1."""
    size = numpy.abs(light)
    return numpy.sign(light) * numpy.where(size <= 0.0031308, 12.92 * size, 1.055 * size ** (1 / 2.4) - 0.055)


def lab_of_srgb(values):
    light = numpy.where(values <= 0.04045, values / 12.92, ((numpy.maximum(values, 0) + 0.055) / 1.055) ** 2.4)
    ratio = light @ numpy.linalg.inv(TO_SRGB).T / WHITE
    x, y, z = numpy.moveaxis(
        numpy.where(ratio > (6 / 29) ** 3, numpy.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29), -1, 0
    )
    return numpy.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def xyz_of_lab(lab):
    middle = (lab[:, 0] + 16) / 116
    roots = numpy.stack([middle + lab[:, 1] / 500, middle, middle - lab[:, 2] / 200], -1)
    return numpy.where(roots > 6 / 29, roots**3, 3 * (6 / 29) ** 2 * (roots - 4 / 29)) * WHITE


def ciede2000(one, other):
    """CIE 142-2001."""
    (l_1, a_1, b_1), (l_2, a_2, b_2) = numpy.moveaxis(one, -1, 0), numpy.moveaxis(other, -1, 0)
    mean = (numpy.hypot(a_1, b_1) + numpy.hypot(a_2, b_2)) / 2
    stretch = 1.5 - 0.5 * numpy.sqrt(mean**7 / (mean**7 + 25.0**7))
    a_1, a_2 = a_1 * stretch, a_2 * stretch
    c_1, c_2 = numpy.hypot(a_1, b_1), numpy.hypot(a_2, b_2)
    h_1, h_2 = numpy.degrees(numpy.arctan2(b_1, a_1)) % 360, numpy.degrees(numpy.arctan2(b_2, a_2)) % 360
    turn = numpy.where(c_1 * c_2 == 0, 0, (h_2 - h_1 + 180) % 360 - 180)
    hue = numpy.where(c_1 * c_2 == 0, h_1 + h_2, (h_1 + ((h_2 - h_1 + 180) % 360 - 180) / 2) % 360)
    lightness, chroma = (l_1 + l_2) / 2, (c_1 + c_2) / 2
    angle = numpy.radians(hue)
    shape = 1 - 0.17 * numpy.cos(angle - numpy.pi / 6) + 0.24 * numpy.cos(2 * angle)
    shape += 0.32 * numpy.cos(3 * angle + numpy.radians(6)) - 0.2 * numpy.cos(4 * angle - numpy.radians(63))
    in_lightness = (l_2 - l_1) / (1 + 0.015 * (lightness - 50) ** 2 / numpy.sqrt(20 + (lightness - 50) ** 2))
    in_chroma = (c_2 - c_1) / (1 + 0.045 * chroma)
    in_hue = 2 * numpy.sqrt(c_1 * c_2) * numpy.sin(numpy.radians(turn) / 2) / (1 + 0.015 * chroma * shape)
    rotation = -2 * numpy.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    rotation *= numpy.sin(numpy.radians(60 * numpy.exp(-(((hue - 275) / 25) ** 2))))
    return numpy.sqrt(in_lightness**2 + in_chroma**2 + in_hue**2 + rotation * in_chroma * in_hue)


def converted(profile: Path, options: list[str], rows):
    """What Argyll's program makes of rows of numbers."""
    text = "\n".join(" ".join(f"{value:.6f}" for value in row) for row in rows)
    command = ["xicclu", "-v0", "-s100", *options, "-pl", str(profile)]
    printed = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return numpy.array(
        [
            [float(value) for value in line.split() if value[0] in "-.0123456789"]
            for line in printed.splitlines()
            if line.strip()
        ]
    )


class Truth:
    """The colours of a profile: relative colorimetric, with black point compensation."""

    def __init__(self, profile: Path) -> None:
        self.profile = profile
        # The black point as Little CMS finds it: the lightness of the inks for black, of neutral hue.
        inks = converted(profile, ["-fb", "-ip"], [(0, 0, 0)])[:, :4]
        lightness = converted(profile, ["-ff", "-ir"], inks)[0, 0]
        self.black = ((lightness + 16) / 116) ** 3
        print(f"the profile's black: L* = {lightness:.2f}")

    def __call__(self, inks):
        """Colours in sRGB, also outside of 0 to 1. Inks are 0 to 1."""
        xyz = xyz_of_lab(converted(self.profile, ["-ff", "-ir"], inks * 100)[:, :3])
        return encoded((xyz - self.black * WHITE) / (1 - self.black) @ TO_SRGB.T)


def grid(amounts: int):
    values = numpy.linspace(0, 1, amounts)
    return numpy.stack(numpy.meshgrid(values, values, values, values, indexing="ij"), -1).reshape(-1, 4)


def weights(inks, curves):
    """The share of each tabled colour in each of `inks`."""
    first, second = curves.T
    places = (inks + inks * (1 - inks) * (first + second * inks)) * (PLACES - 1)
    cells = numpy.clip(numpy.floor(places).astype(int), 0, PLACES - 2)
    parts = places - cells
    columns, values = [], []
    for corner in numpy.ndindex(2, 2, 2, 2):
        index, share = 0, 1.0
        for ink, upper in enumerate(corner):
            index = index * PLACES + cells[:, ink] + upper
            share = share * (parts[:, ink] if upper else 1 - parts[:, ink])
        columns.append(index)
        values.append(share)
    rows = numpy.tile(numpy.arange(len(inks)), 16)
    entries = (numpy.concatenate(values), (rows, numpy.concatenate(columns)))
    return scipy.sparse.csr_matrix(entries, (len(inks), PLACES**4))


def derivatives(colours):
    """How CIE94's lightness, chroma and hue change with each channel of sRGB."""
    # Dark channels have next to no slope in linear light. This keeps the fit from forgetting them.
    colours, step = numpy.clip(colours, 0.03, 1), 1e-4
    lab = lab_of_srgb(colours)
    slopes = numpy.stack([(lab - lab_of_srgb(colours - step * unit)) / step for unit in numpy.eye(3)], -1)
    chroma, hue = numpy.hypot(lab[:, 1], lab[:, 2]), numpy.arctan2(lab[:, 2], lab[:, 1])
    turned = numpy.zeros((len(colours), 3, 3))
    turned[:, 0, 0] = 1
    turned[:, 1, 1], turned[:, 1, 2] = numpy.cos(hue) / (1 + 0.045 * chroma), numpy.sin(hue) / (1 + 0.045 * chroma)
    turned[:, 2, 1], turned[:, 2, 2] = -numpy.sin(hue) / (1 + 0.015 * chroma), numpy.cos(hue) / (1 + 0.015 * chroma)
    return turned @ slopes


class Fit:
    def __init__(self, truth: Truth) -> None:
        self.inks = grid(9)
        self.colours = truth(self.inks)
        self.derivatives = derivatives(self.colours)
        # A picture has more single inks and full inks than a grid.
        self.roots = numpy.where((self.inks > 0).sum(1) <= 1, 5.0, 1.0) ** 0.5
        self.roots[(self.inks % 1 == 0).all(1)] = 50
        corners = (grid(PLACES) % 1 == 0).all(1)
        colours = truth(grid(PLACES))
        # White is exact.
        colours[0] = 1
        fixed = corners[:, None] & (colours >= 0) & (colours <= 1)
        self.fixed = numpy.where(fixed, colours, 0)
        self.free = ~fixed.T.reshape(-1)

    def table(self, curves, rounds: int):
        shares, slopes = weights(self.inks, curves), self.derivatives
        equations = scipy.sparse.vstack(
            [
                scipy.sparse.hstack(
                    [scipy.sparse.diags(slopes[:, out, channel] * self.roots) @ shares for channel in range(3)]
                )
                for out in range(3)
            ]
        ).tocsr()
        unknown, fixed = equations[:, self.free], self.fixed.T.reshape(-1)
        factor = scipy.linalg.cho_factor((unknown.T @ unknown).toarray() + 1e-5 * numpy.eye(self.free.sum()))
        target, flat = self.colours, fixed.copy()
        for _ in range(rounds):
            wanted = numpy.einsum("sij,sj->is", self.derivatives, target) * self.roots
            flat[self.free] = scipy.linalg.cho_solve(factor, unknown.T @ (wanted.reshape(-1) - equations @ fixed))
            table = flat.reshape(3, -1).T
            found = shares @ table
            # What is cut off is as good as any other value that is cut off.
            target = numpy.where(self.colours < 0, numpy.minimum(found, 0), self.colours)
            target = numpy.where(self.colours > 1, numpy.maximum(found, 1), target)
        return table

    def curves(self):
        def cost(flat) -> float:
            curves = flat.reshape(4, 2)
            found = numpy.clip(weights(self.inks, curves) @ self.table(curves, 2), 0, 1)
            wrong = numpy.einsum("sij,sj->si", self.derivatives, found - numpy.clip(self.colours, 0, 1))
            return float(((wrong * self.roots[:, None]) ** 2).sum() / len(wrong))

        return scipy.optimize.minimize(cost, numpy.zeros(8), method="BFGS", options={"maxiter": 12}).x.reshape(4, 2)


def by_little_cms(profile: Path, inks):
    # Black point compensation, without a table of Little CMS's own in between.
    transform = ImageCms.buildTransform(
        str(profile),
        ImageCms.createProfile("sRGB"),
        "CMYK",
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOOPTIMIZE,
    )
    image = Image.frombytes("CMYK", (len(inks), 1), numpy.asarray(inks, numpy.uint8).tobytes())
    return numpy.asarray(ImageCms.applyTransform(image, transform))[0]


def rust(table, curves) -> str:
    colours = "".join(f"    [{red}, {green}, {blue}],\n" for red, green, blue in table)
    inks = ", ".join(f"[{first:.3f}, {second:.3f}]" for first, second in curves)
    return f"""\
//! Figures of offset printing on coated paper, FOGRA39 (ISO 12647-2:2004/Amd 1, paper type 1 or 2). Written by
//! `scripts/cmyk_table.py`, which says how they are computed.
//!
//! The measurements are "FOGRA39L" by Fogra (www.fogra.org), December 2006, in the file FOGRA39L.ti3 of the ICC
//! profiles of OpenICC, Debian's package `icc-profiles-free` 2.0.1. The figures here are computed from them, and are
//! not the original. That file is copyright Kai-Uwe Behrmann <www.behrmann.name>, and has the zlib licence:
//!
//! This software is provided 'as-is', without any express or implied warranty. In no event will the authors be held
//! liable for any damages arising from the use of this software.
//!
//! Permission is granted to anyone to use this software for any purpose, including commercial applications, and to
//! alter it and redistribute it freely, subject to the following restrictions:
//!
//! 1. The origin of this software must not be misrepresented; you must not claim that you wrote the original
//!    software. If you use this software in a product, an acknowledgment in the product documentation would be
//!    appreciated but is not required.
//! 2. Altered source versions must be plainly marked as such, and must not be misrepresented as being the original
//!    software.
//! 3. This notice may not be removed or altered from any source distribution.

/// Tabled places of each ink: none, full, and one between them.
pub(super) const PLACES: usize = {PLACES};

/// The value of white in [`COLOURS`].
pub(super) const WHITE: f32 = {UNIT}.0;

/// Colours in sRGB, in its encoding. Values below 0 and above white are outside of sRGB. Black varies fastest, then
/// yellow, magenta, cyan.
pub(super) const COLOURS: [[i16; 3]; PLACES.pow(4)] = [
{colours}];

/// The curves of cyan, magenta, yellow and black: an amount of 0 to 1 lies at amount + amount · (1 − amount) ·
/// (first + second · amount) of the way from the first place to the last.
pub(super) const CURVES: [[f32; 2]; 4] = [{inks}];
"""


def main() -> None:
    measurements = Path(sys.argv[1]) if len(sys.argv) > 1 else MEASUREMENTS
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(measurements, Path(folder) / "fogra39.ti3")
        command = ["colprof", "-qm", "-bm", f"-l{INK_LIMIT}", "-kr", "-D", "FOGRA39L", "fogra39"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        profile = Path(folder) / "fogra39.icc"
        truth = Truth(profile)
        fit = Fit(truth)
        curves = numpy.round(fit.curves(), 3)
        table = numpy.round(fit.table(curves, 6) * UNIT).astype(int)
        OUTPUT.write_text(rust(table, curves), encoding="utf-8")

        def colours(inks):
            return numpy.clip(weights(inks, curves) @ table / UNIT, 0, 1)

        def print_distance(name: str, one, other) -> None:
            found = ciede2000(lab_of_srgb(one), lab_of_srgb(other))
            print(f"{name}: mean {found.mean():.2f}, 95 % {numpy.percentile(found, 95):.2f}, most {found.max():.2f}")

        for amounts in (9, 10, 17):
            inks = grid(amounts)
            right = numpy.clip(truth(inks), 0, 1)
            print_distance(f"{amounts} amounts of each ink", colours(inks), right)
            print_distance("   of the former formula", (1 - inks[:, :3]) * (1 - inks[:, 3:]), right)
        inks = numpy.random.default_rng(0).random((50_000, 4))
        print_distance("random inks", colours(inks), numpy.clip(truth(inks), 0, 1))
        for ink, name in enumerate(("cyan", "magenta", "yellow", "black")):
            inks = numpy.linspace(0, 1, 101)[:, None] * numpy.eye(4)[ink]
            print_distance(f"{name} alone", colours(inks), numpy.clip(truth(inks), 0, 1))
        inks = numpy.round(grid(10) * 255)
        print_distance("10 amounts by Little CMS", colours(inks / 255), by_little_cms(profile, inks) / 255)
        inks = numpy.array(EXAMPLES)
        rows = zip(EXAMPLES, by_little_cms(profile, inks), numpy.clip(truth(inks / 255), 0, 1), colours(inks / 255))
        for amounts, little_cms, right, found in rows:
            print(amounts, little_cms.tolist(), numpy.round(right * 65_535).astype(int).tolist(), end=" ")
            print("table:", numpy.round(found * 255).astype(int).tolist())


if __name__ == "__main__":
    main()
