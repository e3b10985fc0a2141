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
pub(super) const PLACES: usize = 3;

/// The value of white in [`COLOURS`].
pub(super) const WHITE: f32 = 10000.0;

/// Colours in sRGB, in its encoding. Values below 0 and above white are outside of sRGB. Black varies fastest, then
/// yellow, magenta, cyan.
pub(super) const COLOURS: [[i16; 3]; PLACES.pow(4)] = [
    [10000, 10000, 10000],
    [4806, 4806, 4839],
    [1215, 1197, 1149],
    [10363, 9573, 5469],
    [4787, 4581, 2701],
    [1015, 1032, 283],
    [10337, 9304, -1027],
    [4769, 4412, 234],
    [1181, 1216, -234],
    [9495, 5280, 7120],
    [4514, 2572, 3446],
    [1293, 395, 652],
    [9395, 4898, 3879],
    [4526, 2507, 1883],
    [1045, 269, 11],
    [9366, 4822, 1042],
    [4441, 2381, 25],
    [1056, 471, 251],
    [9012, -82, 4932],
    [4305, 745, 2393],
    [1531, -332, 169],
    [8827, 1771, 2888],
    [4287, 687, 1181],
    [1120, -40, -74],
    [8927, 341, 852],
    [4189, 999, 157],
    [1400, 91, -356],
    [3964, 7717, 9529],
    [1826, 3772, 4540],
    [192, 862, 1168],
    [4470, 7350, 5279],
    [2204, 3644, 2645],
    [-27, 760, 285],
    [4917, 7136, 2066],
    [2204, 3550, 908],
    [141, 806, 59],
    [4906, 4250, 6866],
    [2557, 2133, 3418],
    [358, 78, 551],
    [5057, 4130, 4026],
    [2550, 2087, 1968],
    [534, 409, 252],
    [5048, 3980, 1883],
    [2614, 2082, 701],
    [306, 317, 122],
    [5052, 1704, 5034],
    [2605, 356, 2582],
    [670, 138, 126],
    [5028, 1650, 3076],
    [2560, 836, 1401],
    [570, -44, 25],
    [5013, 1862, 1737],
    [2521, 909, 538],
    [513, 100, 57],
    [-4786, 6239, 8916],
    [-3403, 3055, 4247],
    [-990, 666, 1269],
    [-1311, 6025, 5110],
    [-2357, 2992, 2504],
    [103, 588, 392],
    [-3272, 5891, 2558],
    [-694, 2974, 1267],
    [-832, 875, -18],
    [564, 3577, 6506],
    [153, 1666, 3236],
    [41, 103, 618],
    [974, 3521, 3931],
    [317, 1753, 1940],
    [-62, 224, 208],
    [1364, 3507, 2296],
    [468, 1800, 1000],
    [131, 323, 107],
    [1888, 1592, 5153],
    [1166, 715, 2587],
    [355, -300, 557],
    [2002, 1941, 3198],
    [1094, 949, 1544],
    [69, 80, 25],
    [2017, 1990, 1945],
    [1078, 1072, 718],
    [133, 39, -236],
];

/// The curves of cyan, magenta, yellow and black: an amount of 0 to 1 lies at amount + amount · (1 − amount) ·
/// (first + second · amount) of the way from the first place to the last.
pub(super) const CURVES: [[f32; 2]; 4] = [[-0.319, -0.191], [-0.319, -0.240], [-0.280, -0.165], [-0.124, -0.852]];
