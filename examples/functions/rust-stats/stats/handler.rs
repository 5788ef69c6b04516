//! Count, mean, median and standard deviation of a list of numbers.

use serde_json::{json, Value};

pub fn handler(event: Value) -> Value {
    match parse(event["body"].as_str().unwrap_or("")) {
        Ok(numbers) => json!({ "status": 200, "body": describe(numbers) }),
        Err(problem) => json!({ "status": 422, "body": { "error": problem } }),
    }
}

fn parse(body: &str) -> Result<Vec<f64>, String> {
    let numbers: Vec<f64> =
        serde_json::from_str(body).map_err(|error| format!("the body must be a list of numbers: {error}"))?;
    if numbers.is_empty() {
        return Err("the list is empty".into());
    }
    Ok(numbers)
}

fn describe(mut numbers: Vec<f64>) -> Value {
    numbers.sort_by(f64::total_cmp);
    let count = numbers.len();
    let mean = numbers.iter().sum::<f64>() / count as f64;
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count as f64;
    let median = (numbers[(count - 1) / 2] + numbers[count / 2]) / 2.0;
    json!({ "count": count, "mean": mean, "median": median, "deviation": variance.sqrt() })
}
