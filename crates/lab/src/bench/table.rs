//! Text tables.

use super::stats::Figure;
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

/// A table given column by column: a heading, and how a row's cell is written.
pub struct Columns<'a, R> {
    heads: Vec<String>,
    nr_labels: usize,
    cells: Vec<Cell<'a, R>>,
}

type Cell<'a, R> = Box<dyn Fn(&R) -> String + 'a>;

impl<'a, R> Columns<'a, R> {
    /// Begins with a column of words.
    pub fn label(head: &str, cell: impl Fn(&R) -> String + 'a) -> Columns<'a, R> {
        Columns { heads: vec![head.into()], nr_labels: 1, cells: vec![Box::new(cell)] }
    }

    /// Adds another column of words; columns of words come first.
    pub fn and_label(self, head: &str, cell: impl Fn(&R) -> String + 'a) -> Columns<'a, R> {
        Columns { nr_labels: self.nr_labels + 1, ..self }.number(head, cell)
    }

    /// Adds a column of numbers.
    pub fn number(mut self, head: impl Into<String>, cell: impl Fn(&R) -> String + 'a) -> Columns<'a, R> {
        self.heads.push(head.into());
        self.cells.push(Box::new(cell));
        self
    }

    /// Adds a column of numbers where `is_shown` is true.
    pub fn number_if(self, is_shown: bool, head: &str, cell: impl Fn(&R) -> String + 'a) -> Columns<'a, R> {
        if is_shown { self.number(head, cell) } else { self }
    }

    /// The table of these rows.
    pub fn table<'r>(&self, rows: impl IntoIterator<Item = &'r R>) -> Table
    where
        R: 'r,
    {
        let heads: Vec<&str> = self.heads.iter().map(String::as_str).collect();
        let mut table = plain_table(&heads, self.nr_labels);
        for row in rows {
            table.add_row(self.cells.iter().map(|cell| cell(row)));
        }
        table
    }
}

/// A ratio, if there is one.
pub fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

/// A share, in percent.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Seconds as milliseconds, the spread in brackets.
pub fn milliseconds(seconds: Figure) -> String {
    format!("{:.1} ({})", seconds.median * 1e3, percent(seconds.spread))
}

/// GiB without zeros at the end.
pub fn short_gib(gib: f64) -> String {
    let text = format!("{gib:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
