//! The progress bar: on standard error, and only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `steps` steps; what is under way is its message.
pub fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}/{duration} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}
