//! Which elements a transfer means, worked out the slow and plain way, as a model of [`Patch`] and [`Segment`].

use longarm::{DIMENSIONS_MAX, Patch, Segment};

use super::support::Dice;

/// Elements left free in front of and behind everything, to see that they stay as they are.
pub const MARGIN: usize = 3;

/// A patch that can be enumerated.
#[derive(Clone, Debug)]
pub struct Grid {
    pub start: usize,
    pub counts: Vec<usize>,
    pub strides: Vec<isize>,
}

impl Grid {
    pub fn patch(&self, shift: usize) -> Patch {
        Patch::new(self.start + shift, &self.counts, &self.strides)
    }

    /// The indices in row-major order.
    pub fn indices(&self) -> Vec<usize> {
        let mut indices = vec![self.start as isize];
        for (count, stride) in self.counts.iter().zip(&self.strides) {
            let outer = std::mem::take(&mut indices);
            for from in outer {
                indices.extend((0..*count as isize).map(|step| from + step * stride));
            }
        }
        indices.into_iter().map(|index| usize::try_from(index).expect("inside")).collect()
    }

    /// Any arrangement of these counts: dimensions nested in any order, with gaps, backwards, or on the same place.
    fn any(dice: &mut Dice, counts: &[usize]) -> Grid {
        let mut order: Vec<usize> = (0..counts.len()).collect();
        if dice.below(3) == 0 {
            // The common order: the last dimension is the innermost.
            order.reverse();
        } else {
            for at in (1..order.len()).rev() {
                order.swap(at, dice.below(at + 1));
            }
        }
        let (mut strides, mut extent, mut lowest) = (vec![0; counts.len()], 1_isize, 0_isize);
        for dimension in order {
            let count = counts[dimension] as isize;
            let gap = [0, 0, 1, 2][dice.below(4)];
            let stride = match dice.below(8) {
                0 => 0,
                1 | 2 => -(extent + gap),
                // Steps that are shorter than what they step over: places are met several times.
                3 if extent > 1 => extent / 2,
                _ => extent + gap,
            };
            let reach = stride * (count - 1).max(0);
            lowest += reach.min(0);
            extent += reach.abs();
            strides[dimension] = stride;
        }
        Grid { start: MARGIN + lowest.unsigned_abs(), counts: counts.to_vec(), strides }
    }
}

/// What one transfer pairs.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Equally many elements in a row, from the start of the buffer.
    Run { target: usize, count: usize },
    /// Two patches.
    Strided { target: Grid, origin: Grid },
    /// Pieces.
    Vector(Vec<Segment>),
}

impl Shape {
    /// Pairs of indices: at the target, and in the buffer.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        match self {
            Shape::Run { target, count } => (0..*count).map(|index| (target + index, index)).collect(),
            Shape::Strided { target, origin } => target.indices().into_iter().zip(origin.indices()).collect(),
            Shape::Vector(segments) => {
                let piece = |piece: &Segment| {
                    let Segment { target, origin, count } = *piece;
                    (0..count).map(move |index| (target + index, origin + index))
                };
                segments.iter().flat_map(piece).collect()
            }
        }
    }

    /// One past the last index at the target. An empty patch has a place all the same.
    pub fn target_end(&self) -> usize {
        let start = if let Shape::Strided { target, .. } = self { target.start } else { 0 };
        self.pairs().iter().map(|pair| pair.0 + 1).max().unwrap_or(start)
    }

    /// One past the last index in the buffer.
    pub fn origin_end(&self) -> usize {
        let start = if let Shape::Strided { origin, .. } = self { origin.start } else { 0 };
        self.pairs().iter().map(|pair| pair.1 + 1).max().unwrap_or(start)
    }

    /// The segments of a vector, `shift` further at the target.
    pub fn shifted(segments: &[Segment], shift: usize) -> Vec<Segment> {
        segments.iter().map(|segment| Segment { target: segment.target + shift, ..*segment }).collect()
    }

    fn run(dice: &mut Dice, count: usize) -> Shape {
        Shape::Run { target: MARGIN + dice.below(9), count }
    }

    fn strided(dice: &mut Dice, dimensions: usize) -> Shape {
        let mut counts = Vec::new();
        let mut left = 400;
        for _ in 0..dimensions {
            let count = 1 + dice.below(left.min(5));
            counts.push(count);
            left = (left / count).max(1);
        }
        if dice.below(20) == 0 {
            counts[dice.below(dimensions)] = 0;
        }
        let target = Grid::any(dice, &counts);
        // The two sides may cut equally many elements into different dimensions.
        let other = match dice.below(4) {
            0 => vec![counts.iter().product()],
            1 => counts.iter().rev().copied().collect(),
            _ => counts,
        };
        Shape::Strided { target, origin: Grid::any(dice, &other) }
    }

    fn vector(dice: &mut Dice, segments: usize) -> Shape {
        let (mut target, mut origin) = (MARGIN, MARGIN);
        let mut list = Vec::new();
        for _ in 0..segments {
            let count = [1, 1, 1, 2, 3, 0, 1, 5][dice.below(if segments > 1000 { 4 } else { 8 })];
            list.push(Segment { target, origin, count });
            target += count + dice.below(2);
            origin += count + dice.below(2);
        }
        // Any order, and now and then one that is there twice.
        for at in (1..list.len()).rev() {
            list.swap(at, dice.below(at + 1));
        }
        if segments > 4 && dice.below(3) == 0 {
            list[1].target = list[0].target;
            list[1].count = list[0].count;
        }
        Shape::Vector(list)
    }

    /// Every kind of shape, smaller ones and, where `large` says so, the largest too.
    pub fn every(dice: &mut Dice, large: bool) -> Vec<Vec<Shape>> {
        let mut all: Vec<Vec<Shape>> = [0, 1, 2, 7, 64, 501].map(|count| vec![Shape::run(dice, count)]).into();
        all.extend((1..=DIMENSIONS_MAX).map(|dimensions| vec![Shape::strided(dice, dimensions)]));
        all.extend((1..=3).map(|dimensions| vec![Shape::strided(dice, dimensions)]));
        all.extend([1, 2, 40, 250].map(|segments| vec![Shape::vector(dice, segments)]));
        // Several at once, which may overlap each other: later ones take effect later.
        all.push(vec![Shape::run(dice, 100), Shape::run(dice, 50), Shape::strided(dice, 2)]);
        all.push(vec![Shape::vector(dice, 30), Shape::strided(dice, 3), Shape::run(dice, 3), Shape::run(dice, 60)]);
        if large {
            all.push(vec![Shape::run(dice, 4000)]);
            all.push(vec![Shape::vector(dice, 5000)]);
            all.push(vec![Shape::run(dice, 3000), Shape::vector(dice, 1000), Shape::run(dice, 2500)]);
        }
        all
    }
}
