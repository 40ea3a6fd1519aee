//! Which elements an operation touches at the target and in the buffer, whatever it does with them.

use longarm::{Patch, Segment};

use super::dice::Dice;

/// A regular patch, kept open so that the model can walk it.
#[derive(Clone, Debug)]
pub struct Lattice {
    start: usize,
    counts: Vec<usize>,
    strides: Vec<isize>,
}

#[derive(Clone, Debug)]
pub enum Shape {
    Run { index: usize, count: usize },
    Strided { target: Lattice, buffer: Lattice, buffer_len: usize },
    Vector { segments: Vec<Segment>, buffer_len: usize },
}

/// Equally many elements at the target and in the buffer, one behind the other.
pub struct Piece {
    pub target: usize,
    pub buffer: usize,
    pub count: usize,
}

/// Which side may name one element several times.
#[derive(Clone, Copy, PartialEq)]
pub enum Repeats {
    /// Reads of the buffer: put.
    Buffer,
    /// Reads of the target: get.
    Target,
    /// Everything is applied: accumulate to a place that all may update.
    Both,
    /// For a put and a get of one shape.
    Neither,
}

impl Lattice {
    pub fn patch(&self) -> Patch {
        Patch::new(self.start, &self.counts, &self.strides)
    }

    /// Within `room` elements; `None` if it does not fit.
    fn draw(dice: &mut Dice, counts: &[usize], room: usize, may_repeat: bool) -> Option<Lattice> {
        let mut order: Vec<usize> = (0..counts.len()).rev().collect();
        if dice.chance(30) {
            dice.shuffle(&mut order);
        }
        let mut strides = vec![0_isize; counts.len()];
        let (mut extent, mut back) = (1, 0);
        for dimension in order {
            if may_repeat && dice.chance(10) {
                continue;
            }
            let gap = if dice.chance(60) { 0 } else { dice.below(5) };
            let reach = (extent + gap) * counts[dimension].saturating_sub(1);
            strides[dimension] = (extent + gap) as isize;
            extent += reach;
            if dice.chance(15) {
                strides[dimension] = -strides[dimension];
                back += reach;
            }
        }
        let start = room.checked_sub(extent)?;
        Some(Lattice { start: dice.below(start + 1) + back, counts: counts.to_vec(), strides })
    }

    /// Every element in row-major order.
    fn walk(&self) -> Vec<usize> {
        let mut places = vec![self.start as isize];
        for (count, stride) in self.counts.iter().zip(&self.strides) {
            places = places.iter().flat_map(|place| (0..*count as isize).map(move |at| place + at * stride)).collect();
        }
        places.iter().map(|place| *place as usize).collect()
    }

    fn shift(&mut self, by: usize) {
        self.start += by;
    }
}

impl Shape {
    /// Up to about `count` elements within the `room` ones from `first` on.
    pub fn draw(dice: &mut Dice, (first, room): (usize, usize), count: usize, repeats: Repeats) -> Shape {
        let count = count.min(room);
        let mut shape = match dice.below(10) {
            _ if count == 0 => None,
            0..=4 => None,
            5..=7 => Shape::draw_strided(dice, room, count, repeats),
            _ => Some(Shape::draw_vector(dice, room, count, repeats)),
        };
        if shape.is_none() {
            // Both ends of the room more often than the places between.
            let last = room - count;
            let index = *dice.pick(&[0, last, dice.clone().below(last + 1)]);
            shape = Some(Shape::Run { index, count });
        }
        let mut shape = shape.expect("drawn just now");
        match &mut shape {
            Shape::Run { index, .. } => *index += first,
            Shape::Strided { target, .. } => target.shift(first),
            Shape::Vector { segments, .. } => segments.iter_mut().for_each(|segment| segment.target += first),
        }
        shape
    }

    fn draw_strided(dice: &mut Dice, room: usize, count: usize, repeats: Repeats) -> Option<Shape> {
        let dimensions = if dice.chance(90) { dice.within(1, 4) } else { dice.within(5, 8) };
        for budget in [count, count / 2, count / 8, count / 64] {
            let mut left = budget.max(1);
            let mut counts = Vec::new();
            for _ in 1..dimensions {
                let here = dice.within(1, left.min(9));
                counts.push(here);
                left /= here;
            }
            counts.push(left);
            if dice.chance(1) {
                counts[dice.clone().below(dimensions)] = 0;
            }
            let target = Lattice::draw(dice, &counts, room, matches!(repeats, Repeats::Target | Repeats::Both));
            let buffer_len = 2 * budget + 16;
            let buffer = Lattice::draw(dice, &counts, buffer_len, matches!(repeats, Repeats::Buffer | Repeats::Both));
            if let (Some(target), Some(buffer)) = (target, buffer) {
                return Some(Shape::Strided { target, buffer, buffer_len });
            }
        }
        None
    }

    fn draw_vector(dice: &mut Dice, room: usize, count: usize, repeats: Repeats) -> Shape {
        let many = if dice.chance(4) { 3000 } else { 40 };
        let parts = dice.within(1, count.min(many));
        let each = count / parts;
        let gap_max = 2 * (room - count) / parts;
        let mut segments = Vec::with_capacity(parts);
        let (mut target, mut origin) = (0, 0);
        for _ in 0..parts {
            let part = if dice.chance(2) { 0 } else { each };
            target += dice.below(gap_max + 1);
            if target + part > room {
                break;
            }
            let place = if repeats == Repeats::Both { dice.below(room - part + 1) } else { target };
            segments.push(Segment { target: place, origin, count: part });
            target += part;
            origin += part + dice.below(3);
        }
        dice.shuffle(&mut segments);
        Shape::Vector { segments, buffer_len: origin + dice.below(4) }
    }

    /// Elements of the buffer.
    pub fn buffer_len(&self) -> usize {
        match self {
            Shape::Run { count, .. } => *count,
            Shape::Strided { buffer_len, .. } | Shape::Vector { buffer_len, .. } => *buffer_len,
        }
    }

    /// What is paired with what, in order.
    pub fn pieces(&self) -> Vec<Piece> {
        match self {
            Shape::Run { index, count } => vec![Piece { target: *index, buffer: 0, count: *count }],
            Shape::Vector { segments, .. } => segments
                .iter()
                .map(|segment| Piece { target: segment.target, buffer: segment.origin, count: segment.count })
                .collect(),
            Shape::Strided { target, buffer, .. } => {
                let mut pieces: Vec<Piece> = Vec::new();
                for (target, buffer) in target.walk().into_iter().zip(buffer.walk()) {
                    match pieces.last_mut() {
                        Some(last) if last.target + last.count == target && last.buffer + last.count == buffer => {
                            last.count += 1;
                        }
                        _ => pieces.push(Piece { target, buffer, count: 1 }),
                    }
                }
                pieces
            }
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shape::Run { index, count } => write!(f, "elements {index}..{}", index + count),
            Shape::Strided { target, buffer, .. } => write!(f, "{target:?} with {buffer:?} of the buffer"),
            Shape::Vector { segments, .. } => {
                write!(f, "{} segments, first {:?}", segments.len(), segments.first())
            }
        }
    }
}
