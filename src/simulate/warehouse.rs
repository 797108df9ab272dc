//! A hall with rows of pallet racks, half full, and a tour up and down its aisles.

use super::random::Random;
use super::route::{Route, Spot};
use super::scene::{block, column, slab, Scene};
use super::world::{Kind, Solid, World};

/// Length of a bay and depth of a row, m: three pallets of 0.8 x 1.2 m.
const BAY: [f64; 2] = [2.7, 1.1];
/// Cross-section of an upright, m.
const UPRIGHT: f64 = 0.1;

pub(super) fn draw(mut random: Random) -> Option<Scene> {
    // Odd, so that the last aisle leads back west.
    let (rows, bays) = (2 * random.below(2) + 5, random.below(4) + 9);
    let aisle = random.between(2.9, 3.5);
    let cross = random.between(4.0, 5.5);
    let levels = random.below(2) + 3;
    let step = random.between(1.5, 1.9);
    let height = step * levels as f64 + 2.0;
    let pitch = BAY[1] + aisle;
    let size = [BAY[0] * bays as f64 + 2.0 * cross, pitch * rows as f64 + aisle];
    let mut solids = hall(size, height, &mut random);
    let mut tour: Vec<Spot> = Vec::new();
    for row in 0..=rows {
        let middle = pitch * row as f64 + aisle / 2.0;
        // Up one aisle, down the next, a little to either side as drivers do.
        let ends = [cross * 0.5, cross + 1.0, size[0] - cross - 1.0, size[0] - cross * 0.5];
        let mut way: Vec<Spot> = ends.map(|x| [x, middle + random.between(-0.3, 0.3)]).to_vec();
        if row % 2 == 1 {
            way.reverse();
        }
        tour.extend(way);
        if row == rows {
            continue;
        }
        let front = middle + aisle / 2.0;
        for bay in 0..=bays {
            let x = cross + BAY[0] * bay as f64;
            for (part, y) in [(0, front + UPRIGHT / 2.0), (1, front + BAY[1] - UPRIGHT / 2.0)] {
                let size = [UPRIGHT, UPRIGHT, step * levels as f64 + 0.3];
                solids.push(block(Kind::Rack, part, [x, y, size[2] / 2.0], size, 0.0));
            }
        }
        for level in 0..levels {
            let z = step * level as f64;
            if level > 0 {
                let area = [cross, cross + BAY[0] * bays as f64, front + 0.05, front + BAY[1] - 0.05];
                solids.push(slab(Kind::Rack, 2, area, [z - 0.12, z]));
            }
            for place in 0..3 * bays {
                if !random.chance(0.55) {
                    continue;
                }
                let x = cross + BAY[0] / 3.0 * (place as f64 + 0.5) + random.between(-0.03, 0.03);
                let y = front + BAY[1] / 2.0 + random.between(-0.05, 0.05);
                solids.push(block(Kind::Load, 0, [x, y, z + 0.07], [0.78, 1.0, 0.14], 0.0));
                let size =
                    [random.between(0.5, 0.76), random.between(0.6, 1.0), random.between(0.3, step - 0.4)];
                let yaw = random.normal(0.03);
                solids.push(block(Kind::Load, 1, [x, y, z + 0.14 + size[2] / 2.0], size, yaw));
            }
        }
    }
    // Back to the start along the western wall.
    tour.extend([[1.3, size[1] - aisle / 2.0 - 1.5], [1.3, size[1] / 2.0], [1.3, aisle / 2.0 + 1.5]]);
    let route = Route::through(&tour);
    let areas = [[0.5, cross - 0.5, 0.5, size[1] - 0.5], [0.5, size[0] - 0.5, 0.5, aisle - 0.5]];
    Scene::checked(World::new(size, Some(height), solids), route, &areas, &mut random)
}

/// Walls with pilasters, gates, and columns behind the racks' ends.
fn hall([length, width]: [f64; 2], height: f64, random: &mut Random) -> Vec<Solid> {
    let z = [0.0, height];
    let mut solids = vec![
        slab(Kind::Wall, 0, [0.0, length, -0.2, 0.0], z),
        slab(Kind::Wall, 0, [0.0, length, width, width + 0.2], z),
        slab(Kind::Wall, 0, [-0.2, 0.0, 0.0, width], z),
        slab(Kind::Wall, 0, [length, length + 0.2, 0.0, width], z),
    ];
    let mut x = random.between(2.0, 6.0);
    while x < length - 1.0 {
        for (y, side) in [(0.0, 1.0), (width, -1.0)] {
            let deep = random.between(0.15, 0.35);
            let size = [random.between(0.25, 0.45), deep, height];
            solids.push(block(Kind::Pilaster, 0, [x, y + side * deep / 2.0, height / 2.0], size, 0.0));
        }
        x += random.between(5.0, 8.0);
    }
    for _ in 0..12 {
        // Guards and bins along the western and eastern walls.
        let west = random.chance(0.5);
        let y = random.between(2.0, width - 2.0);
        let size = [random.between(0.3, 0.5), random.between(0.5, 1.6), random.between(0.5, 1.8)];
        let x = if west { size[0] / 2.0 } else { length - size[0] / 2.0 };
        solids.push(block(Kind::Cabinet, 0, [x, y, size[2] / 2.0], size, 0.0));
        solids.push(column(
            Kind::Pole,
            0,
            [if west { 0.3 } else { length - 0.3 }, y + 1.2],
            0.08,
            [0.0, 1.1],
        ));
    }
    solids
}
