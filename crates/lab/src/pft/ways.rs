//! The table of the calibration: each way of zeroing by batch size, and the library's
//! choice.

use crate::bench::plain_table;
use softfault::clear::{BatchPlan, ClearTable, Zeroing};

/// Frames in the batches that a calibration measures.
const BATCHES: [u64; 3] = [1, 8, 64];

/// Nanoseconds per page of 4 KiB, and the plans.
pub fn table(measured: &ClearTable) -> String {
    let mut head = vec!["zeroing, ns a page: batch of"];
    head.extend(Zeroing::ALL.map(Zeroing::name));
    head.extend(["lines", "pages"]);
    let mut table = plain_table(&head, 1);
    for nr_frames in BATCHES {
        let Some(best) = measured.batch(nr_frames) else { continue };
        let mut cells = vec![nr_frames.to_string()];
        cells.extend(Zeroing::ALL.map(|way| {
            measured.batch_cost(nr_frames, way).map_or("-".into(), |cost| format!("{}, {}", cost.line, cost.all))
        }));
        cells.extend([plan(best.sparse), plan(best.dense)]);
        table.add_row(cells);
    }
    format!(
        "{table}\n\nEach with what follows: a store of one line of each page, then stores to all of it. The last two \
         columns are the ways\nfor programs that write lines, and for those that write pages; each CPU finds out by \
         itself which ones it runs."
    )
}

fn plan(plan: BatchPlan) -> String {
    match plan.nr_near {
        0 => plan.far.name().into(),
        nr => format!("{} behind {nr} by {}", plan.far.name(), plan.near.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault::FrameRange;
    use softfault::clear::{Scratch, calibrate};
    use softfault::machine::Machine;
    use softfault_host::{Hosted, HostedConfig};

    #[test]
    fn each_batch_that_was_measured_has_a_row() {
        let mut hosted = Hosted::new(HostedConfig::default()).unwrap();
        let range = FrameRange { nr_frames: 10, ..hosted.frames()[0] };
        let table = table(&calibrate(&mut Scratch::new(&mut hosted, range).unwrap()));
        let rows = |nr: &str| table.lines().filter(|line| line.trim_start().starts_with(nr)).count();
        assert_eq!((rows("1 "), rows("8 "), rows("64 ")), (1, 1, 0), "{table}");
    }
}
