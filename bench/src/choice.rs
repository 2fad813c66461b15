//! The arguments of a benchmark: its parts, and sizes such as `jobs=20000`.

/// The sizes that are given and the parts that are chosen: all of them if none is.
pub(crate) fn split<'a>(
    arguments: &[&'a str],
    parts: &[&'static str],
) -> Result<(Vec<&'a str>, Vec<String>), String> {
    let (given, chosen): (Vec<&str>, Vec<&str>) =
        arguments.iter().copied().partition(|it| it.contains('='));
    if let Some(unknown) = chosen.iter().find(|it| !parts.contains(it)) {
        return Err(format!("unknown part {unknown:?}: choose among {}", parts.join(", ")));
    }
    let chosen = if chosen.is_empty() { parts.to_vec() } else { chosen };
    Ok((given, chosen.into_iter().map(str::to_owned).collect()))
}

/// Puts the sizes that are given in their places.
pub(crate) fn set_sizes(
    given: &[&str],
    places: &mut [(&'static str, &mut usize)],
) -> Result<(), String> {
    for setting in given {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let known: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
        let Some((_, place)) = places.iter_mut().find(|(known, _)| *known == name) else {
            return Err(format!("unknown size {name:?}: choose among {}", known.join(", ")));
        };
        let number: usize = value.parse().map_err(|_| format!("{setting:?} is no number"))?;
        if number == 0 {
            return Err(format!("{name} must be at least 1"));
        }
        **place = number;
    }
    Ok(())
}
