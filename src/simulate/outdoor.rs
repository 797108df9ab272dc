//! Streets around blocks of houses under the open sky, with parked cars, trees and lamps.

use super::random::Random;
use super::route::{Route, Spot};
use super::scene::{block, column, slab, Area, Scene};
use super::world::{Kind, Solid, World};

/// Width of a street between the kerbs, and of a pavement, m.
const STREET: f64 = 9.0;
const PAVEMENT: f64 = 3.0;

/// From a house front to the one across the street, m.
const ACROSS: f64 = STREET + 2.0 * PAVEMENT;
/// Depth of the houses around it all, m.
const RIM: f64 = 8.0;

/// `columns` x `rows` blocks of houses, streets around and between them, a rim of houses outside.
pub(super) fn draw(mut random: Random, [columns, rows]: [usize; 2]) -> Option<Scene> {
    let mut edges = |n: usize, range: fn(usize) -> [f64; 2]| {
        let mut at = RIM;
        let blocks = (0..n).map(|k| {
            let [low, high] = range(k);
            let from = at + ACROSS;
            at = from + random.between(low, high);
            [from, at]
        });
        (blocks.collect::<Vec<_>>(), at + ACROSS + RIM)
    };
    let (xs, length) = edges(columns, |k| if k % 2 == 0 { [32.0, 44.0] } else { [30.0, 40.0] });
    let (ys, width) = edges(rows, |_| [22.0, 30.0]);
    let size = [length, width];
    let blocks = || ys.iter().flat_map(|y| xs.iter().map(move |x| [x[0], x[1], y[0], y[1]]));
    let mut solids = Vec::new();
    for area in blocks() {
        houses(&mut solids, area, &mut random);
        pavement(&mut solids, area, &mut random);
    }
    rim_of_houses(&mut solids, size, RIM, &mut random);
    for y in &ys {
        parked_cars(&mut solids, &xs, *y, &mut random);
    }
    // The middle of the streets before each block, and after the last.
    let lanes = |blocks: &[[f64; 2]]| -> Vec<f64> {
        let after = blocks.iter().map(|block| block[1] + ACROSS / 2.0);
        std::iter::once(RIM + ACROSS / 2.0).chain(after).collect()
    };
    let (lanes_x, lanes_y) = (lanes(&xs), lanes(&ys));
    let crossings = round_the_blocks([columns, rows]);
    let spot = |[column, row]: [usize; 2]| Some([*lanes_x.get(column)?, *lanes_y.get(row)?]);
    let corners: Vec<Spot> = crossings.into_iter().filter_map(spot).collect();
    let tour: Vec<Spot> = corners.windows(2).flat_map(|leg| straight(leg[0], leg[1], &mut random)).collect();
    let route = Route::through(&tour);
    let pavements = blocks().enumerate().map(|(k, [x0, x1, y0, y1])| {
        let y = if (k % columns + k / columns) % 2 == 0 { [y0 - PAVEMENT, y0] } else { [y1, y1 + PAVEMENT] };
        [x0 - PAVEMENT, x1 + PAVEMENT, y[0], y[1]]
    });
    let between = ys.iter().flat_map(|y| xs.windows(2).map(move |x| [x[0][1], x[1][0], y[0], y[1]]));
    let west = ys.iter().map(|y| [RIM, RIM + ACROSS, y[0], y[1]]);
    let walks: Vec<Area> = pavements.chain(between).chain(west).collect();
    Scene::checked(World::new(size, None, solids), route, &walks, &mut random)
}

/// A closed way around every block: the crossings that it passes. Blocks are visited to and fro, row by row. Of two
/// neighbours one is gone around to the left and one to the right, so that both pass the street between them in
/// the same direction; at its end the way turns from one to the other, and back when that one is done. So it
/// nowhere goes back on itself.
fn round_the_blocks([columns, rows]: [usize; 2]) -> Vec<[usize; 2]> {
    let around = |[c, r]: [usize; 2]| match (c + r) % 2 {
        1 => [[c, r], [c + 1, r], [c + 1, r + 1], [c, r + 1]],
        _ => [[c, r], [c, r + 1], [c + 1, r + 1], [c + 1, r]],
    };
    let block = |k: usize| {
        let (row, along) = (k / columns, k % columns);
        [if row % 2 == 0 { columns - 1 - along } else { along }, row]
    };
    // From the last one, whose way stands alone: the way of each is put in where it meets the one before.
    let mut way: Vec<[usize; 2]> = Vec::new();
    for k in (0..columns * rows).rev() {
        let own = around(block(k));
        let meets = |other: usize| {
            let other = around(block(other));
            (0..4).find(|&i| other.contains(&own[i]) && other.contains(&own[(i + 3) % 4]))
        };
        let start = match k.checked_sub(1) {
            Some(before) => meets(before),
            None => meets((k + 1).min(columns * rows - 1)),
        };
        let joint = way.first().copied();
        let mut round = Vec::new();
        for i in 0..=4 {
            let crossing = own[(start.unwrap_or(0) + i) % 4];
            if i > 0 && Some(crossing) == joint {
                round.append(&mut way);
            } else {
                round.push(crossing);
            }
        }
        way = round;
    }
    way
}

/// Points along a leg, well before and after its corners, a little to either side.
fn straight(from: Spot, to: Spot, random: &mut Random) -> Vec<Spot> {
    let way = [to[0] - from[0], to[1] - from[1]];
    let length = (way[0] * way[0] + way[1] * way[1]).sqrt();
    let unit = [way[0] / length, way[1] / length];
    let steps = ((length - 10.0) / 8.0).ceil().max(1.0) as usize;
    (0..=steps)
        .map(|k| {
            let along = 5.0 + (length - 10.0) * k as f64 / steps as f64;
            let aside = random.between(-0.4, 0.4);
            [from[0] + unit[0] * along - unit[1] * aside, from[1] + unit[1] * along + unit[0] * aside]
        })
        .collect()
}

/// A row of houses along one side of an area: `axis` is the one that the row follows, `wall` where
/// the fronts stand on the other one, `inward` the direction into the area.
fn row(solids: &mut Vec<Solid>, axis: usize, span: [f64; 2], wall: f64, inward: f64, random: &mut Random) {
    let mut put = |kind, part, along: [f64; 2], deep: [f64; 2], z: [f64; 2]| {
        let across = [wall + inward * deep[0], wall + inward * deep[1]];
        let across = [across[0].min(across[1]), across[0].max(across[1])];
        let area = if axis == 0 {
            [along[0], along[1], across[0], across[1]]
        } else {
            [across[0], across[1], along[0], along[1]]
        };
        solids.push(slab(kind, part, area, z));
    };
    let mut from = span[0];
    while from < span[1] {
        let to = (from + random.between(6.5, 12.0)).min(span[1]);
        let front = random.between(0.0, 1.3);
        put(Kind::Wall, 0, [from, to], [front, 3.0], [0.0, random.between(5.0, 13.0)]);
        let mut x = from + random.between(0.4, 1.5);
        while x + 1.6 < to {
            let wide = random.between(0.9, 1.5);
            match random.below(5) {
                // A bay, steps before a door, a downpipe, a sill.
                0 => {
                    let height = random.between(2.2, 4.5);
                    put(
                        Kind::Pilaster,
                        0,
                        [x, x + wide],
                        [front - random.between(0.25, 0.6), front],
                        [0.0, height],
                    );
                }
                1 => {
                    put(Kind::Kerb, 1, [x, x + wide], [front - 0.7, front], [0.0, 0.17]);
                    put(Kind::Kerb, 2, [x, x + wide], [front - 0.35, front], [0.17, 0.34]);
                }
                2 => put(Kind::Pole, 1, [x, x + 0.12], [front - 0.12, front], [0.0, 4.5]),
                _ => {
                    put(Kind::Pilaster, 1, [x, x + wide], [front - 0.15, front], [0.85, 0.95]);
                    put(Kind::Pilaster, 2, [x, x + wide], [front - 0.1, front], [2.2, 2.35]);
                }
            }
            x += wide + random.between(0.5, 2.5);
        }
        from = to;
    }
}

/// A block of houses: rows along its four sides.
fn houses(solids: &mut Vec<Solid>, [x0, x1, y0, y1]: Area, random: &mut Random) {
    row(solids, 0, [x0, x1], y0, 1.0, random);
    row(solids, 0, [x0, x1], y1, -1.0, random);
    row(solids, 1, [y0, y1], x0, 1.0, random);
    row(solids, 1, [y0, y1], x1, -1.0, random);
}

/// The houses across the outer streets, with a pavement of their own.
fn rim_of_houses(solids: &mut Vec<Solid>, [length, width]: [f64; 2], rim: f64, random: &mut Random) {
    row(solids, 0, [rim, length - rim], rim, -1.0, random);
    row(solids, 0, [rim, length - rim], width - rim, 1.0, random);
    row(solids, 1, [rim, width - rim], rim, -1.0, random);
    row(solids, 1, [rim, width - rim], length - rim, 1.0, random);
}

/// A pavement around a block, with trees and lamps on it.
fn pavement(solids: &mut Vec<Solid>, [x0, x1, y0, y1]: Area, random: &mut Random) {
    let edge = [x0 - PAVEMENT, x1 + PAVEMENT, y0 - PAVEMENT, y1 + PAVEMENT];
    solids.push(slab(Kind::Kerb, 0, edge, [0.0, 0.12]));
    let mut stand = |spot: Spot| match random.below(3) {
        0 => {
            let (radius, crown) = (random.between(0.1, 0.22), random.between(2.3, 3.0));
            solids.push(column(Kind::Tree, 0, spot, radius, [0.0, crown]));
            let wide = random.between(1.0, 1.8);
            solids.push(column(Kind::Tree, 1, spot, wide, [crown, crown + random.between(2.0, 4.0)]));
        }
        1 => solids.push(column(Kind::Pole, 0, spot, 0.07, [0.0, random.between(4.0, 6.0)])),
        _ => {
            let size = [random.between(0.4, 1.4), random.between(0.3, 0.6), random.between(0.6, 1.4)];
            solids.push(block(
                Kind::Crate,
                0,
                [spot[0], spot[1], size[2] / 2.0],
                size,
                random.between(0.0, 3.0),
            ));
        }
    };
    let inset = PAVEMENT - 0.7;
    let mut along = 2.0;
    while along < (x1 - x0).max(y1 - y0) - 2.0 {
        if along < x1 - x0 - 2.0 {
            stand([x0 + along, y0 - inset]);
            stand([x0 + along + 1.7, y1 + inset]);
        }
        if along < y1 - y0 - 2.0 {
            stand([x0 - inset, y0 + along]);
            stand([x1 + inset, y0 + along + 1.3]);
        }
        along += 6.5;
    }
}

/// Cars at the kerbs of the blocks, in line with the street.
fn parked_cars(solids: &mut Vec<Solid>, blocks: &[[f64; 2]], rows: [f64; 2], random: &mut Random) {
    for &[from, to] in blocks {
        for (kerb, side) in [(rows[0] - PAVEMENT, -1.0), (rows[1] + PAVEMENT, 1.0)] {
            let mut x = from + 3.0;
            while x < to - 3.0 {
                let size = [random.between(3.7, 4.8), random.between(1.7, 1.9), random.between(0.7, 0.9)];
                if random.chance(0.6) {
                    let y = kerb + side * (size[1] / 2.0 + random.between(0.1, 0.3));
                    let yaw = random.normal(0.02);
                    let body = [x, y, 0.2 + size[2] / 2.0];
                    solids.push(block(Kind::Car, 0, body, size, yaw));
                    let cabin = [size[0] * 0.55, size[1] - 0.2, 0.5];
                    solids.push(block(Kind::Car, 1, [x - 0.1, y, 0.2 + size[2] + 0.25], cabin, yaw));
                }
                x += random.between(5.4, 8.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_way_passes_every_street_and_never_turns_back() {
        for size in [[1, 1], [2, 1], [1, 3], [2, 2], [3, 2], [5, 5]] {
            let way = round_the_blocks(size);
            assert_eq!(way.first(), way.last());
            let legs: Vec<_> = way.windows(2).map(|leg| [leg[0], leg[1]]).collect();
            let adjacent = |[a, b]: &[[usize; 2]; 2]| a[0].abs_diff(b[0]) + a[1].abs_diff(b[1]) == 1;
            assert!(legs.iter().all(adjacent), "{size:?}: {way:?}");
            let next = legs.iter().cycle().skip(1);
            assert!(legs.iter().zip(next).all(|(a, b)| *b != [a[1], a[0]]), "{size:?}: {way:?}");
            let streets: BTreeSet<_> = legs.iter().map(|[a, b]| [a.min(b), a.max(b)]).collect();
            let [columns, rows] = size;
            assert_eq!(streets.len(), columns * (rows + 1) + rows * (columns + 1), "{size:?}");
            assert_eq!(legs.len(), 4 * columns * rows);
        }
    }
}
