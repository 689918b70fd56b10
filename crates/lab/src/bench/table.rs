//! Tables for people.

use comfy_table::{CellAlignment, Table, presets};

/// A table without rules, numbers to the right after the first `nr_labels` columns.
pub fn plain_table(head: &[&str], nr_labels: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    for column in table.column_iter_mut().skip(nr_labels) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
