//! Rates of links (`enum ibv_rate`) as multiples of 2.5 Gb/s and in Mb/s (IBTA vol. 1, 9.11;
//! `libibverbs/verbs.c`).

use std::ffi::c_int;

/// `IBV_RATE_MAX`
const MAX: c_int = 0;

/// Number of `enum ibv_rate`, multiple of 2.5 Gb/s (-1 if the original knows none), Mb/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `ibv_rate_to_mult`
pub extern "C" fn rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

/// `mult_to_ibv_rate`
pub extern "C" fn mult_to_rate(mult: c_int) -> c_int {
    RATES.iter().find(|row| row.1 == mult && mult > 0).map_or(MAX, |row| row.0)
}

/// `ibv_rate_to_mbps`
pub extern "C" fn rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

/// `mbps_to_ibv_rate`
pub extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|row| row.2 == mbps).map_or(MAX, |row| row.0)
}
