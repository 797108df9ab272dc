//! A road tunnel: long, nearly the same all along, with a niche, a lamp or a door now and then.

use super::random::Random;
use super::route::{Route, Spot};
use super::scene::{block, slab, Scene};
use super::world::{Kind, Solid, World};

/// Edge of a piece of lining, m.
const PIECE: f64 = 12.5;

pub(super) fn draw(mut random: Random) -> Option<Scene> {
    let pieces = random.below(5) + 12;
    let length = PIECE * pieces as f64;
    let (road, niche) = (random.between(8.5, 10.5), 1.2);
    let height = random.between(4.7, 5.6);
    let width = road + 2.0 * niche;
    let mut solids: Vec<Solid> = vec![
        slab(Kind::Wall, 0, [-0.3, 0.0, 0.0, width], [0.0, height]),
        slab(Kind::Wall, 0, [length, length + 0.3, 0.0, width], [0.0, height]),
    ];
    for (outer, inner, inward) in [(0.0, niche, 1.0), (width, width - niche, -1.0)] {
        let (low, high) = (f64::min(outer, inner), f64::max(outer, inner));
        // A foot along the wall, cable trays above.
        let foot = inner + inward * 0.35;
        let area = [0.0, length, inner.min(foot), inner.max(foot)];
        solids.push(slab(Kind::Kerb, 0, area, [0.0, random.between(0.15, 0.25)]));
        let tray = inner + inward * random.between(0.2, 0.4);
        let z = height - random.between(0.7, 1.1);
        solids.push(slab(Kind::Duct, 0, [0.0, length, inner.min(tray), inner.max(tray)], [z, z + 0.1]));
        solids.push(slab(Kind::Wall, 0, [0.0, length, outer - 0.1, outer + 0.1], [0.0, height]));
        for piece in 0..pieces {
            let (from, to) = (PIECE * piece as f64, PIECE * (piece + 1) as f64);
            if random.chance(0.3) {
                // A niche: the lining stands back over some metres, with a cabinet in it.
                let (open, wide) = (from + random.between(1.0, 6.0), random.between(2.0, 4.5));
                solids.push(slab(Kind::Wall, 1, [from, open, low, high], [0.0, height]));
                solids.push(slab(Kind::Wall, 1, [open + wide, to, low, high], [0.0, height]));
                solids.push(slab(Kind::Wall, 2, [open, open + wide, low, high], [2.4, height]));
                let size = [random.between(0.5, 1.4), 0.4, random.between(0.8, 1.9)];
                let x = open + random.between(0.8, wide - 0.8);
                let y = outer + inward * (0.1 + size[1] / 2.0);
                solids.push(block(Kind::Cabinet, 0, [x, y, size[2] / 2.0], size, 0.0));
            } else {
                // Rings of lining are not quite in line.
                let offset = inward * random.between(-0.04, 0.04);
                let (low, high) = (low + offset.min(0.0), high + offset.max(0.0));
                solids.push(slab(Kind::Wall, 1, [from, to, low, high], [0.0, height]));
            }
            if random.chance(0.6) {
                let x = random.between(from, to);
                let size = [random.between(0.3, 1.2), 0.12, random.between(0.3, 0.9)];
                let y = inner + inward * 0.1;
                solids.push(block(Kind::Pilaster, 0, [x, y, random.between(1.2, 2.6)], size, 0.0));
            }
        }
    }
    for piece in 0..pieces {
        let x = PIECE * (piece as f64 + random.between(0.3, 0.7));
        let y = width / 2.0 + random.between(-0.3, 0.3);
        if piece % 4 == 2 {
            // A jet fan below the ceiling.
            solids.push(block(Kind::Duct, 1, [x, y, height - 0.55], [3.2, 0.9, 0.9], 0.0));
        } else {
            solids.push(block(Kind::Pole, 0, [x, y, height - 0.1], [1.2, 0.25, 0.12], 0.0));
        }
    }
    // Down the right lane, a turn at the end, and back.
    let (right, left) = (niche + road * 0.25, niche + road * 0.75);
    let mut tour: Vec<Spot> = Vec::new();
    let steps = pieces - 1;
    for (lane, forth) in [(right, true), (left, false)] {
        let mut way: Vec<Spot> = (0..=steps)
            .map(|k| [PIECE * 0.5 + PIECE * k as f64, lane + random.between(-0.25, 0.25)])
            .collect();
        if !forth {
            way.reverse();
        }
        tour.extend(way);
        tour.push([if forth { length - 2.2 } else { 2.2 }, width / 2.0]);
    }
    let route = Route::through(&tour);
    let areas = [[1.0, length - 1.0, niche + 0.6, width - niche - 0.6]];
    Scene::checked(World::new([length, width], Some(height), solids), route, &areas, &mut random)
}
