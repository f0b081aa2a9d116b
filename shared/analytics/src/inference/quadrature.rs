//! Numerical integration: adaptive Gauss-Kronrod quadrature with 7 and 15 points (R. Piessens et al., QUADPACK, 1983).

/// By pair of Kronrod nodes, from the outermost: the node, its weight, and its weight in the Gauss rule (0: none).
const NODES: [(f64, f64, f64); 7] = [
    (0.991_455_371_120_812_6, 0.022_935_322_010_529_224, 0.0),
    (0.949_107_912_342_758_5, 0.063_092_092_629_978_55, 0.129_484_966_168_869_7),
    (0.864_864_423_359_769_1, 0.104_790_010_322_250_18, 0.0),
    (0.741_531_185_599_394_4, 0.140_653_259_715_525_92, 0.279_705_391_489_276_64),
    (0.586_087_235_467_691_1, 0.169_004_726_639_267_9, 0.0),
    (0.405_845_151_377_397_2, 0.190_350_578_064_785_4, 0.381_830_050_505_118_9),
    (0.207_784_955_007_898_47, 0.204_432_940_075_298_9, 0.0),
];
/// The weights of the centre.
const CENTRE: (f64, f64) = (0.209_482_141_084_727_82, 0.417_959_183_673_469_4);

/// Difference of the two rules below which a part is accepted. The 15-point rule is much more precise than the difference.
const TOLERANCE: f64 = 1e-11;
/// Bisections of a part, at most.
const DEPTH: u32 = 40;

/// Integrates over consecutive parts between `points`, which ascend.
pub(super) fn integrate(function: &impl Fn(f64) -> f64, points: &[f64]) -> f64 {
    points.windows(2).map(|ends| integrate_part(function, ends[0], ends[1], DEPTH)).sum()
}

fn integrate_part(function: &impl Fn(f64) -> f64, low: f64, high: f64, depth: u32) -> f64 {
    if high <= low {
        return 0.0;
    }
    let (centre, half) = (0.5 * (low + high), 0.5 * (high - low));
    let at_centre = function(centre);
    let (mut kronrod, mut gauss) = (CENTRE.0 * at_centre, CENTRE.1 * at_centre);
    for (node, weight, gauss_weight) in NODES {
        let pair = function(centre - half * node) + function(centre + half * node);
        kronrod += weight * pair;
        gauss += gauss_weight * pair;
    }
    if depth == 0 || ((kronrod - gauss) * half).abs() <= TOLERANCE {
        return kronrod * half;
    }
    integrate_part(function, low, centre, depth - 1) + integrate_part(function, centre, high, depth - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_integrated_exactly() {
        for degree in 0..=22 {
            let got = integrate_part(&|x: f64| x.powi(degree), 0.0, 1.0, 0);
            assert!((got * f64::from(degree + 1) - 1.0).abs() < 1e-14, "{degree}: {got}");
        }
    }

    #[test]
    fn singular_ends_and_narrow_peaks_are_bisected() {
        assert!((integrate(&|x: f64| x.sqrt(), &[0.0, 1.0]) - 2.0 / 3.0).abs() < 1e-10);
        let peak = |x: f64| 1e-3 / (x * x + 1e-6);
        assert!((integrate(&peak, &[-1.0, 0.0, 1.0]) - 2.0 * 1e3_f64.atan()).abs() < 1e-10);
    }
}
