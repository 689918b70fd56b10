//! `cargo xtask miri`: tests under Miri, which follows each access.
//!
//! It is part of a nightly toolchain, and builds into a target folder of its own. It is bounded by the number of tests:
//! nothing is ended by time. It must also report a race that is planted.

use crate::check;
use crate::shell::{self, Line};

/// The options of `cargo xtask miri`.
#[derive(clap::Args)]
pub struct Options {
    /// Only the part that the gate has
    #[arg(long)]
    sample: bool,
}

/// Tests of one build.
struct Play {
    /// Arguments of `cargo test`.
    target: &'static str,
    /// The tests, by their whole names: to compare each test's name with parts of names takes Miri longer than most tests.
    names: &'static [&'static str],
}

const UNITS: &str = "-p softfault --lib";
const THREADS: &str = "-p softfault-testkit --test small_threads";

/// The gate's: about a minute of CPU time.
const SAMPLE: [Play; 2] = [
    Play {
        target: UNITS,
        names: &[
            "bytes::tests::halves_are_exchanged_if_they_are_as_expected",
            "bytes::tests::parts_of_words_are_those_of_an_array_of_bytes",
            "bytes::tests::stores_of_neighbours_are_not_lost",
            "section::tests::a_section_of_the_space_is_a_token",
            "source::slot::tests::a_folio_moves_whole_or_not_at_all",
            "space::tree::tests::a_record_keeps_all_flags_and_any_object",
            "space::tree::tests::faults::lost_nodes_and_wrong_sums_are_found",
            "swap::area::tests::each_slot_has_one_owner",
            "table::entry::tests::unlocking_keeps_what_the_hardware_set",
            "table::entry::tests::who_takes_an_entry_sees_what_the_hardware_set_before",
            "table::run::tests::an_entry_that_is_not_none_stays_and_is_not_counted",
            "table::run::tests::entries_have_the_words_that_the_format_says",
        ],
    },
    Play { target: THREADS, names: &["accesses_of_all_sizes_meet_in_one_word", "stores_meet_holes_and_sizes"] },
];
/// The rest. Of the tests of trees only those that look at few pages.
const OTHERS: [Play; 2] = [
    Play {
        target: UNITS,
        names: &[
            "bytes::tests::a_range_beyond_the_words_is_refused",
            "section::tests::a_lookup_of_another_vm_is_no_token_for_a_founder",
            "section::tests::a_section_of_another_space_is_no_token_for_a_tree",
            "section::tests::a_section_of_another_vm_is_no_token_for_an_object",
            "section::tests::a_section_of_no_space_is_no_token_for_tables",
            "section::tests::any_section_of_the_vm_is_a_token_for_objects",
            "section::tests::the_lock_of_another_space_is_no_token_for_a_tree",
            "section::tests::the_lock_of_another_space_is_no_token_for_tables",
            "source::slot::tests::a_folio_takes_all_of_its_places_or_none",
            "source::slot::tests::a_folio_that_was_replaced_is_not_marked_in_part",
            "source::slot::tests::a_large_folio_is_one_word",
            "source::swapped_slot::tests::a_length_only_shrinks",
            "source::swapped_slot::tests::a_word_has_slot_and_length",
            "source::swapped_slot::tests::what_is_about_to_leave_is_not_written",
            "space::tree::indices::tests::a_union_has_both",
            "space::tree::indices::tests::an_interval_is_never_too_small_and_hardly_too_large",
            "space::tree::tests::faults::every_fault_is_found_where_it_is",
            "space::tree::tests::gaps::the_ends_of_the_address_space_do_not_wrap",
            "space::tree::tests::oracle::a_circle_is_left",
            "space::tree::tests::oracle::a_copy_counts_its_own_references",
            "space::tree::tests::oracle::a_leaf_names_no_children",
            "swap::area::tests::a_change_of_the_stack_is_seen",
            "swap::area::tests::a_page_that_nobody_needs_stays_until_the_write_is_over",
            "swap::area::tests::nothing_is_lost_that_was_not_written",
            "swap::area::tests::readers_and_entries_do_not_run_into_each_other",
            "swap::area::tests::the_frame_goes_once_the_page_is_written",
            "swap::area::tests::the_page_of_an_object_is_not_read_before_it_is_written",
        ],
    },
    Play { target: THREADS, names: &["faults_meet_removals_and_forks", "stores_meet_moves_and_swap"] },
];
/// A test that has a race on purpose.
pub const PLANTED: &str = "--ignored a_planted_race_is_reported";

/// Pointers keep their provenance; a machine that ends gives its memory back, so leaks are looked for.
const MIRI_FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-disable-isolation";
const MIRI: &str = "run nightly cargo miri";
/// How to get it.
pub const INSTALL: &str = "rustup toolchain install nightly --component miri,rust-src";

fn miri(play: &Play) -> Line {
    let line = format!("{MIRI} test --target-dir target/miri {} -- --exact {}", play.target, play.names.join(" "));
    // The names in a backtrace of a panic that is expected cost Miri more than the test.
    Line::new("rustup", &line).with("MIRIFLAGS", MIRI_FLAGS).with("RUST_BACKTRACE", "0")
}

/// Why there is no sample: no nightly toolchain with Miri.
pub fn missing() -> Option<String> {
    note(&Line::new("rustup", &format!("{MIRI} --version")))
}

/// The note, if the probe fails or cannot be run.
fn note(probe: &Line) -> Option<String> {
    let has_miri = shell::captured(probe).is_ok_and(|(_, found)| found.is_ok());
    (!has_miri).then(|| format!("left out: Miri, since no nightly toolchain has it. To install it: {INSTALL}"))
}

/// Runs the plays, and the one that must fail.
///
/// # Errors
///
/// A play has failed, or there is no Miri.
pub fn run(options: &Options) -> Result<(), String> {
    if let Some(note) = missing() {
        return Err(note);
    }
    let others: &[Play] = if options.sample { &[] } else { &OTHERS };
    for play in SAMPLE.iter().chain(others) {
        let mut nr_passed = 0;
        shell::run_watched(&miri(play), |text| nr_passed += passed(text))?;
        all_there(play, nr_passed)?;
    }
    if options.sample { Ok(()) } else { must_report(&miri(&Play { target: THREADS, names: &[PLANTED] }), "Data race") }
}

/// The gate's sample: its output, and whether all has passed.
///
/// # Errors
///
/// A play could not be run.
pub fn sample() -> Result<(String, Result<(), String>), String> {
    let mut all = String::new();
    for play in &SAMPLE {
        let (text, result) = shell::captured(&miri(play))?;
        all += &text;
        let result = result.and_then(|()| all_there(play, text.lines().map(passed).sum()));
        if result.is_err() {
            return Ok((all, result));
        }
    }
    Ok((all, Ok(())))
}

/// The tests that passed, if the line says how many.
fn passed(line: &str) -> u64 {
    check::counts(line).map_or(0, |(passed, _)| passed)
}

/// A test that has another name now would be left out without a word.
fn all_there(play: &Play, nr_passed: u64) -> Result<(), String> {
    let Play { target, names } = play;
    let wanted = names.len() as u64;
    if nr_passed == wanted {
        Ok(())
    } else {
        Err(format!("{target}: {nr_passed} of {wanted} tests that are named ran"))
    }
}

/// Runs a play that must fail with this report.
///
/// # Errors
///
/// There was none, or the play could not be run.
pub fn must_report(line: &Line, report: &str) -> Result<(), String> {
    let (text, result) = shell::captured(line)?;
    let is_reported = result.is_err() && text.contains(report);
    println!("the planted race: {}", if is_reported { "reported" } else { text.as_str() });
    if is_reported { Ok(()) } else { Err(format!("{}: should report the planted race", line.text())) }
}

#[cfg(test)]
mod tests {
    use super::{MIRI, SAMPLE, all_there, note, passed};
    use crate::shell::Line;

    #[test]
    fn a_test_that_did_not_run_is_noticed() {
        let line = |nr: usize| format!("test result: ok. {nr} passed; 0 failed; 0 ignored; 0 measured");
        let nr = SAMPLE[0].names.len();
        assert_eq!(all_there(&SAMPLE[0], passed(&line(nr))), Ok(()));
        assert!(all_there(&SAMPLE[0], passed(&line(nr - 1))).is_err());
        assert!(all_there(&SAMPLE[0], passed("running 12 tests")).is_err());
    }

    #[test]
    fn a_machine_without_a_toolchain_is_noted() {
        let probe = Line::new("rustup", &format!("{MIRI} --version")).with("PATH", "/nonexistent");
        assert!(note(&probe).is_some_and(|note| note.contains("left out: Miri") && note.contains("rustup toolchain")));
        assert!(note(&Line::new("false", "")).is_some(), "a toolchain without Miri");
        assert!(note(&Line::new("true", "")).is_none());
    }
}
