//! Huge pages that are set aside at boot: `hugepages=N`, of the size that `hugepagesz=` or `default_hugepagesz=` names
//! before it. The parameters are read in their order, as on Linux.

use super::number;
use crate::port::mm;
use softfault::Order;

/// A parameter that changes nothing, and why.
type Refused = &'static str;

const BAD_SIZE: Refused = "should be 2M or 1G; it is ignored, and so is a hugepages= that follows";

/// The parameters that were read so far.
#[derive(Default)]
pub struct Pools {
    default: Option<Order>,
    /// Pages of the default size, said before any size was named.
    of_default: Option<u64>,
    of_sizes: [Option<u64>; 2],
    /// The size that was named last.
    named: Option<Order>,
    /// The last size was refused.
    is_refused: bool,
    /// The size that was named last has its number already, or all sizes while none is named.
    is_counted: bool,
}

/// Place of a size in the lists.
fn place(order: Order) -> usize {
    usize::from(order != mm::HUGE_ORDERS[0])
}

impl Pools {
    /// Reads `hugepagesz=`.
    pub fn size(&mut self, size: &str) -> Result<(), Refused> {
        self.named(size).map(drop)
    }
    /// Reads `default_hugepagesz=`. Pages that were said before any size are of that one.
    pub fn default_size(&mut self, size: &str) -> Result<(), Refused> {
        if self.default.is_some() {
            self.is_refused = true;
            return Err("the default is known already; it is ignored, and so is a hugepages= that follows");
        }
        let order = self.named(size)?;
        self.default = Some(order);
        self.of_sizes[place(order)] = self.of_default.take().filter(|nr| *nr > 0).or(self.of_sizes[place(order)]);
        Ok(())
    }
    /// Reads `hugepages=`.
    pub fn number(&mut self, nr: &str) -> Result<(), Refused> {
        if core::mem::take(&mut self.is_refused) {
            return Err("follows no known size; ignored");
        }
        if self.is_counted {
            return Err("there is one already for that size; ignored");
        }
        let nr = nr.parse().map_err(|_| "should be a number; ignored")?;
        *self.named.map_or(&mut self.of_default, |order| &mut self.of_sizes[place(order)]) = Some(nr);
        self.is_counted = true;
        Ok(())
    }
    fn named(&mut self, size: &str) -> Result<Order, Refused> {
        let order = number::size(size.as_bytes()).and_then(mm::huge_order_of);
        self.is_refused = order.is_none();
        let order = order.ok_or(BAD_SIZE)?;
        (self.named, self.is_counted) = (Some(order), self.of_sizes[place(order)].is_some());
        Ok(order)
    }
    /// Says which size is the default one, and makes the pages: as many as there is memory for. `complain` is told of each size of
    /// which there are fewer.
    pub fn fill(&self, complain: fn(core::fmt::Arguments)) {
        let default = self.default.unwrap_or(mm::HUGE_ORDERS[0]);
        mm::set_default_huge_order(default);
        for order in mm::HUGE_ORDERS {
            let of_default = self.of_default.filter(|nr| *nr > 0 && order == default);
            let nr = of_default.or(self.of_sizes[place(order)]).unwrap_or(0);
            if nr == 0 {
                continue;
            }
            match mm::vm().set_nr_hugepages(order, nr) {
                Ok(has) if has == nr => {}
                Ok(has) => complain(format_args!("hugepages={nr}: memory for {has} only")),
                Err(why) => complain(format_args!("hugepages={nr}: {why}")),
            }
        }
    }
}
