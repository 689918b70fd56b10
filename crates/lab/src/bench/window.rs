//! The window of fault-around, as it is typed: `--orders`, `--fault-around`.

use softfault::policy::around::{AroundOrder, FaultAround, MOST_ORDER};

/// How many pages a fault may map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(pub FaultAround);

impl Window {
    /// 2^order pages.
    pub fn fixed(order: AroundOrder) -> Window {
        Window(FaultAround::Fixed(order))
    }
    /// log2 of its pages, unless it is adaptive.
    pub fn order(self) -> Option<AroundOrder> {
        match self.0 {
            FaultAround::Fixed(order) => Some(order),
            _ => None,
        }
    }
    /// The word in output and on the command line.
    pub fn name(self) -> String {
        self.order().map_or("adaptive".into(), |order| order.get().to_string())
    }
}

/// Parses one of `--orders`.
pub fn parse_window(text: &str) -> Result<Window, String> {
    if text == "adaptive" {
        return Ok(Window(FaultAround::Adaptive));
    }
    let order = text.parse().ok().and_then(AroundOrder::new);
    order.map(Window::fixed).ok_or_else(|| format!("should be a number from 0 to {MOST_ORDER}, or adaptive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_orders_or_adaptive() {
        for name in ["0", "9", "adaptive"] {
            assert_eq!(parse_window(name).unwrap().name(), name);
        }
        assert!(parse_window("10").unwrap_err().contains("0 to 9"));
        assert!(parse_window("").is_err() && parse_window("-1").is_err());
    }
}
