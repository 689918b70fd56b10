//! `softfault clear-huge` and `softfault anon-w-seq` from outside: exit codes,
//! messages, JSON and nothing else.

use serde_json::Value;
use std::process::{Command, Output};

fn softfault(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softfault"))
        .args(arguments.split_whitespace())
        .output()
        .expect("it can be started")
}

fn text(arguments: &str) -> String {
    let output = softfault(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json_lines(arguments: &str) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    text(arguments).lines().map(parsed).collect()
}

#[test]
fn wrong_arguments_are_named_and_explained() {
    for (arguments, named, wanted) in [
        ("clear-huge --orders forward,backward", "--orders", "forward, converge, runs, hybrid"),
        ("clear-huge --orders", "--orders", "value"),
        ("clear-huge --target 512", "--target", "0..512"),
        ("clear-huge --reps 0", "--reps", "1..="),
        ("clear-huge --folios 3", "--folios", "4..="),
        ("clear-huge --folios 1048576", "--folios", "should be smaller"),
        ("clear-huge --plot touches.png", "--plot", ".svg"),
        ("clear-huge --against windows", "--against", "linux"),
        ("anon-w-seq --orders fast", "--orders", "forward, converge, runs, hybrid"),
        ("anon-w-seq --processes 0", "--processes", "1..="),
        ("anon-w-seq --processes 1025", "--processes", "1024"),
        ("anon-w-seq --mib 7", "--mib", "even number of MiB"),
        ("anon-w-seq --mib many", "--mib", "even number of MiB"),
        ("anon-w-seq --processes 512 --mib 1048576", "--mib", "should be smaller"),
        ("anon-w-seq --plot bars.png", "--plot", ".svg"),
    ] {
        let output = softfault(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(named) && message.contains(wanted), "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments} prints something besides its error");
    }
}

#[test]
fn clear_huge_gives_a_line_for_each_speed_and_each_distance() {
    let rows =
        json_lines("clear-huge --orders hybrid,forward,hybrid --reps 2 --folios 4 --target 3 --against none --json");
    let of = |order: &str, load: &str, metric: &str| {
        rows.iter().filter(|r| r["order"] == order && r["load"] == load && r["metric"] == metric).count()
    };
    let loads: &[&str] = if rows.iter().any(|r| r["load"] == "streaming") { &["idle", "streaming"] } else { &["idle"] };
    for order in ["forward", "hybrid"] {
        for load in loads {
            assert_eq!((of(order, load, "clear"), of(order, load, "first_touch")), (1, 8), "{order} {load}");
        }
    }
    assert_eq!(rows.len(), 18 * loads.len());
    for row in &rows {
        assert_eq!((row["experiment"].as_str(), row["system"].as_str()), (Some("clear-huge"), Some("softfault")));
        assert_eq!((row["target"].as_u64(), row["threads"].as_u64()), (Some(3), Some(1)));
        assert_eq!((row["bytes"].as_u64(), row["bytes_touched"].as_u64()), (Some(2 << 20), Some(2 << 20)));
        assert!(row["value"].as_f64().unwrap() > 0.0 && row["spread"].is_number(), "{row}");
        let is_speed = row["metric"] == "clear";
        assert_eq!(row["unit"], if is_speed { "GB/s" } else { "ns/line" });
        assert_eq!(row["distance"].is_null(), is_speed);
        assert_eq!(row["near_resident"].is_number(), is_speed);
        assert!(row["ratio_to_converge"].is_null(), "converge was not run");
    }
}

#[test]
fn the_model_says_what_is_near() {
    let text = text("clear-huge --reps 1 --folios 4 --against none");
    let last = |order: &str| {
        let line = text.lines().find(|line| line.contains(order)).unwrap_or_else(|| panic!("no {order}: {text}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        words[words.len() - 2..].join(" ")
    };
    assert_eq!(last("softfault forward"), "0% 0%");
    assert_eq!(last("softfault converge"), "100% 0%");
    assert_eq!(last("softfault hybrid"), "100% 97%");
    assert!(text.contains("2017") && text.contains("33.4%") && text.contains("hybrid over converge"), "{text}");
}

#[test]
fn copying_tells_what_it_touches() {
    let rows = json_lines("clear-huge --copy --orders converge,hybrid --reps 1 --folios 4 --json");
    let speeds: Vec<&Value> = rows.iter().filter(|r| r["metric"] == "copy" && r["load"] == "idle").collect();
    let touched = |order: &str| speeds.iter().find(|r| r["order"] == order).unwrap()["bytes_touched"].as_u64();
    assert_eq!((touched("converge"), touched("hybrid")), (Some(4 << 20), Some(4 << 20)));
    assert_eq!(touched("4 KiB"), Some(8192));
    // A host without huge pages has no such row.
    if let Some(linux) = speeds.iter().find(|r| r["system"] == "linux") {
        assert_eq!(linux["order"], "cow");
        assert_eq!(linux["bytes_touched"].as_u64(), linux["bytes"].as_u64().map(|bytes| 2 * bytes));
    }
    assert!(speeds.iter().find(|r| r["order"] == "hybrid").unwrap()["ratio_to_converge"].as_f64().unwrap() > 0.0);
    assert!(text("clear-huge --copy --reps 1 --folios 4").contains("8 KiB"));
}

#[test]
fn anon_w_seq_gives_a_line_for_each_order() {
    let rows = json_lines("anon-w-seq --processes 3 --mib 8 --reps 2 --json");
    let orders: Vec<&str> = rows.iter().filter_map(|r| r["order"].as_str()).collect();
    assert_eq!(orders[..4], ["forward", "converge", "runs", "hybrid"]);
    for row in &rows {
        assert_eq!((row["experiment"].as_str(), row["unit"].as_str()), (Some("anon-w-seq"), Some("GB/s")));
        assert_eq!((row["processes"].as_u64(), row["mib"].as_u64()), (Some(3), Some(8)));
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["ratio_to_forward"].is_null(), row["order"] == "forward", "{row}");
        assert_eq!(row["modelled_hits"].is_null(), row["system"] == "linux", "{row}");
    }
    let hits = |i: usize| rows[i]["modelled_hits"].as_f64();
    assert_eq!((hits(0), hits(1)), (Some(0.0), Some(0.625)));
}

#[test]
fn the_gain_of_2017_is_printed_beside_ours() {
    let text = text("anon-w-seq --processes 2 --mib 8 --reps 1 --orders forward,converge --against none");
    let line = text.lines().find(|line| line.starts_with("converge over forward")).expect("the comparison");
    assert!(line.contains("+28.3%") && line.contains("72 processes"), "{line}");
    assert!(!text.contains("linux"), "{text}");
}

#[test]
fn plots_are_written_where_they_were_asked_for() {
    let short = ["clear-huge --reps 1 --folios 4", "anon-w-seq --processes 1 --mib 8 --reps 1"];
    for (arguments, wanted) in short.into_iter().zip(["softfault hybrid", "order of clearing"]) {
        let name = format!("softfault-clearing-{}-{}.svg", std::process::id(), &arguments[..4]);
        let file = std::env::temp_dir().join(name);
        text(&format!("{arguments} --plot {}", file.display()));
        let plot = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(plot.starts_with("<svg") && plot.contains(wanted));
    }
}
