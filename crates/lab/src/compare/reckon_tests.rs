//! Tests of reckon.rs.

use super::*;
use crate::compare::record::Record;

fn ran(wall_ns: u64, output: &str) -> Ran {
    let rest = r#""user_us":1000000,"system_us":500000,"minor_faults":7,"major_faults":0,"max_rss_kib":9,"status":0"#;
    let line = format!(r#"{{"wall_ns":{wall_ns},{rest}}}"#);
    let record: Record = serde_json::from_str(&line).expect("all keys");
    Ran { record, output: output.as_bytes().to_vec(), errors: Vec::new() }
}

fn boots(system: System, walls_s: &[u64], rates: &[&str]) -> Row {
    let regex = Regex::new("rate ([0-9.]+)").expect("a regular expression");
    let rates = rates.iter().map(Some).chain(std::iter::repeat(None));
    let sample = |(wall_s, rate): (&u64, Option<&&str>)| {
        let run = ran(wall_s * 1_000_000_000, rate.copied().unwrap_or(""));
        sample(system, &[run], rate.map(|_| &regex)).expect("a number")
    };
    row(system, walls_s.iter().zip(rates).map(sample).collect())
}

#[test]
fn medians_of_medians() {
    let runs = [ran(9_000_000_000, ""), ran(1_000_000_000, ""), ran(2_000_000_000, "")];
    let sample = sample(System::Linux, &runs, None).expect("no rate is asked for");
    assert_eq!((sample.wall_s, sample.user_s, sample.system_s), (2.0, 1.0, 0.5));
    assert_eq!((sample.minor_faults, sample.max_rss_kib, sample.rate), (7.0, 9.0, None));
    let row = boots(System::Linux, &[4, 2, 3], &[]);
    assert_eq!((row.middle.wall_s, row.spread), (3.0, 2.0 / 3.0));
}

#[test]
fn a_ratio_above_one_is_ours_ahead() {
    let rows = [boots(System::Softfault, &[2, 1, 2], &[]), boots(System::Linux, &[4, 3, 6], &[])];
    let found = ratio(&rows).expect("both are there");
    assert_eq!((found.wall, found.rate, found.pairs), (2.0, None, (2.0, 3.0)));
    let rows = [boots(System::Softfault, &[1], &["rate 30"]), boots(System::Linux, &[1], &["rate 10"])];
    let found = ratio(&rows).expect("both are there");
    assert_eq!((found.wall, found.rate, found.pairs), (1.0, Some(3.0), (3.0, 3.0)));
    assert_eq!(ratio(&rows[..1]), None);
}

#[test]
fn the_last_rate_counts() {
    let regex = |text| Regex::new(text).expect("a regular expression");
    let rate = |text: &str, pattern| find_rate(System::Linux, &ran(1, text), &regex(pattern)).ok();
    assert_eq!(rate("a 1 b\na 2.5 b\n", "a ([0-9.]+)"), Some(2.5));
    assert_eq!(rate("17", "[0-9]+"), Some(17.0));
    assert_eq!(rate("none", "[0-9]+"), None);
    assert_eq!(rate("a b", "a (.)"), None);
}
