//! Everybody's order of the slots, laid out to be gone through: who is first at a slot, if nothing but the positions decides?
//!
//! The lowest position of a block needs no branch and no index, so a processor takes several at a time; only the blocks that have the lowest
//! are looked at member by member.

use super::seat::Order;

const BLOCK: usize = 16;

/// The orders of some members, steps and offsets apart. Where nobody is stands [`Order::NONE`].
#[derive(Debug, Clone)]
struct Block {
    steps: [u32; BLOCK],
    offsets: [u32; BLOCK],
}

impl Block {
    const NOBODY: Self = Self { steps: [Order::NONE.step; BLOCK], offsets: [Order::NONE.offset; BLOCK] };

    #[inline]
    fn positions(&self, slot: usize) -> impl Iterator<Item = u32> {
        self.steps.iter().zip(&self.offsets).map(move |(step, offset)| {
            let order = Order { step: *step, offset: *offset };
            order.position(slot)
        })
    }
}

/// The orders of all members, by seat number.
#[derive(Debug, Default)]
pub(super) struct Orders(Vec<Block>);

impl Orders {
    pub(super) fn set(&mut self, number: u16, order: Order) {
        let (block, at) = (usize::from(number) / BLOCK, usize::from(number) % BLOCK);
        if block >= self.0.len() {
            self.0.resize(block + 1, Block::NOBODY);
        }
        self.0[block].steps[at] = order.step;
        self.0[block].offsets[at] = order.offset;
    }

    /// The numbers of the two with the lowest positions at a slot. `None` if the positions do not say: some are the same, or there are not two.
    pub(super) fn first_two(&self, slot: usize) -> Option<(u16, u16)> {
        let lowest = |block: &Block| block.positions(slot).fold(u32::MAX, u32::min);
        let blocks = three_lowest(self.0.iter().map(lowest).zip(0..));
        // Where there are fewer blocks, the others are none of them.
        let within = blocks.into_iter().filter_map(|(_, block)| Some((block, self.0.get(block as usize)?)));
        let [first, second, third] =
            three_lowest(within.flat_map(|(block, it)| it.positions(slot).zip(block * BLOCK as u32..)));
        (first.0 < second.0 && second.0 < third.0).then_some((first.1 as u16, second.1 as u16))
    }
}

/// The three lowest positions, each with what comes with it. What is missing has the last position, as nobody has.
#[inline]
fn three_lowest(all: impl Iterator<Item = (u32, u32)>) -> [(u32, u32); 3] {
    let three = all.fold([u64::MAX; 3], |[first, second, third], (position, number)| {
        let it = u64::from(position) << 32 | u64::from(number);
        let (first, it) = (first.min(it), first.max(it));
        let (second, it) = (second.min(it), second.max(it));
        [first, second, third.min(it)]
    });
    three.map(|both| ((both >> 32) as u32, both as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picker::consistent::seat::{Seat, mix};

    #[test]
    fn the_lowest_wherever_they_are() {
        for members in [0u16, 1, 4, 5, 63, 64, 65, 200, 400] {
            let mut orders = Orders::default();
            let seats: Vec<_> = (0..members).map(|number| Seat::new(mix(number.into()), 1, 12)).collect();
            seats.iter().zip(0..).for_each(|(seat, number)| orders.set(number, seat.order));
            if members > 70 {
                orders.set(66, Order::NONE);
            }
            for slot in 0..1 << 12 {
                let mut all: Vec<_> =
                    seats.iter().zip(0..).map(|(it, number)| (it.order.position(slot), number)).collect();
                all.retain(|(_, number)| members <= 70 || *number != 66);
                all.sort_unstable();
                let told = all.get(..2).filter(|_| all.iter().take(3).is_sorted_by(|a, b| a.0 < b.0));
                let expected = told.map(|first| (first[0].1, first[1].1));
                assert_eq!(orders.first_two(slot), expected, "{slot} of {members}");
            }
        }
    }

    #[test]
    fn two_at_one_position_are_not_told_apart() {
        let mut orders = Orders::default();
        let offsets = [(3, 9), (70, 9), (140, 2)];
        offsets.into_iter().for_each(|(number, offset)| orders.set(number, Order { step: 1, offset }));
        // Who of them comes second?
        assert_eq!(orders.first_two(5), None);
        orders.set(200, Order { step: 1, offset: 1 });
        assert_eq!(orders.first_two(5), Some((200, 140)));
    }
}
