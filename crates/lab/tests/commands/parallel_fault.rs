//! `softfault parallel-fault`.

use super::*;

#[test]
fn wrong_arguments_of_parallel_fault_are_refused() {
    is_refused("parallel-fault 0", "THREADS", "1..");
    is_refused("parallel-fault 513", "THREADS", "512");
    is_refused("parallel-fault 2 2048", "SIZE_KB", "a page for each of 2 thread(s)");
    is_refused("parallel-fault 2 17179869184", "SIZE_KB", "should be smaller");
    is_refused("parallel-fault --page 4K", "--page", "2M, 1G");
    is_refused("parallel-fault --locks one,two", "--locks", "one, table, lockfree");
    is_refused("parallel-fault --mutexes 4097", "--mutexes", "4096");
    is_refused("parallel-fault --zeroing bzero", "--zeroing", "clzero");
    is_refused("parallel-fault --shape ring", "--shape", "database");
}

/// The command checks the pages that were touched and those that came back.
#[test]
fn parallel_fault_gives_a_line_for_each_row() {
    for (shape, arguments, faults) in [("linear", "2 32768", 16), ("database", "2 4096 --mutexes 5", 130 * 2)] {
        let lines = json_lines(&format!("parallel-fault {arguments} --shape {shape} --reps 1 --json"));
        let of = |system: &str, discipline: &str, threads: u64| {
            let is_meant = |line: &&Value| {
                line["system"] == system && line["discipline"] == discipline && line["threads"] == threads
            };
            lines.iter().find(is_meant).unwrap_or_else(|| panic!("{system} {discipline} {threads}"))
        };
        for threads in [1, 2] {
            for (discipline, mutexes) in
                [("one", Some(1)), ("table", Some(if shape == "linear" { 4 } else { 8 })), ("lockfree", None)]
            {
                let line = of("softfault", discipline, threads);
                assert_eq!(line["mutexes"].as_u64(), mutexes, "{line}");
                assert!(mutexes.is_none() || line["acquisitions"].as_u64() >= Some(faults), "{line}");
                assert!(line["contentions"].as_u64() <= line["acquisitions"].as_u64(), "{line}");
                assert!(line["seconds"].as_f64() > Some(0.0) && line["seconds"] == line["value"], "{line}");
                assert_eq!(line["over_1_thread"].is_null(), threads == 1, "{line}");
            }
            for system in ["warm-clear", "clear"] {
                let line = of(system, "none", threads);
                assert!(
                    line["wait_us"].is_null() && line["way"].as_str().is_some_and(|way| way.contains(", ")),
                    "{line}"
                );
            }
            assert_eq!(of("warm-clear", "none", threads)["way"], of("softfault", "one", threads)["way"]);
        }
        let nr_old = lines.iter().filter(|line| line["system"] == "linux-2013").count();
        assert_eq!((lines.len(), nr_old), if shape == "linear" { (10 + 3, 3) } else { (10 + 2, 2) });
    }
}

/// The rows of the goal beside Linux. A host without a pool, or a user who may not grow it, has no row of faults, and the
/// clears are compared all the same.
#[test]
fn parallel_fault_compares_faults_and_clears_with_those_of_linux() {
    let arguments = "parallel-fault 2 32768 --locks lockfree --reps 2 --against linux";
    let lines = json_lines(&format!("{arguments} --json"));
    let of =
        |system: &str, threads: u64| lines.iter().find(|line| line["system"] == system && line["threads"] == threads);
    let number = |line: &Value, key: &str| line[key].as_f64().filter(|number| *number > 0.0);
    let has_pool = of("linux", 1).is_some();
    assert!(has_pool || lines.iter().any(|line| line["system"] == "linux" && !line["why"].is_null()), "{lines:?}");
    for threads in [1, 2] {
        let [ours, warm, linux_clear] =
            ["softfault", "warm-clear", "linux-clear"].map(|system| of(system, threads).unwrap());
        assert!(linux_clear["discipline"] == "none" && linux_clear["ratio_of_clears"].is_null(), "{linux_clear}");
        assert!(linux_clear["way"].as_str().is_some_and(|way| way.contains(" for ")), "{linux_clear}");
        assert!(number(warm, "ratio_of_clears").is_some() && warm["ratio_to_linux"].is_null(), "{warm}");
        assert_eq!(ours["ratio_of_clears"], warm["ratio_of_clears"], "ours clear as warm-clear does");
        for key in ["ratio_to_linux", "ratio_to_linux_spread", "quotient", "quotient_spread"] {
            assert_eq!(ours[key].is_null(), !has_pool, "{key}: {ours}");
        }
        assert!(number(ours, "over_own_clear").is_some(), "{ours}");
    }
    let text = String::from_utf8(softfault(arguments).stdout).unwrap();
    assert!(text.contains("is assumed to clear on this CPU: "), "{text}");
    assert_eq!(text.contains("this Linux : lockfree, 2 thread(s): faults "), has_pool, "{text}");
}
