//! From a `call` frame to the event a handler gets. Page invocation/event.

use crate::base64;
use crate::wire::Frame;
use serde_json::{Map, Value};

/// What the `start` frame says, the same for every call.
pub struct Function {
    pub root: String,
    pub dir: String,
    version: Value,
    pub env: Value,
    context: Map<String, Value>,
    pub adapter: String,
}

impl Function {
    pub fn new(mut fields: Map<String, Value>) -> Self {
        let mut text = |key: &str| match fields.remove(key) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (root, dir, adapter, version) = (text("root"), text("dir"), text("adapter"), text("version"));
        let context = match fields.remove("context") {
            Some(Value::Object(context)) => context,
            _ => Map::new(),
        };
        let env = match fields.remove("env") {
            Some(Value::Object(env)) => Value::Object(env),
            _ => Value::Object(Map::new()),
        };
        let version = Value::from(if version.is_empty() { "default".into() } else { version });
        Function { root, dir, version, env, context, adapter }
    }

    pub fn max_body_bytes(&self) -> usize {
        self.context.get("max_body_bytes").and_then(Value::as_u64).unwrap_or(0) as usize
    }

    /// The fields of the header are the event's own; some of them belong into its context.
    pub fn to_event(&self, frame: Frame) -> Result<Value, String> {
        let mut event = frame.fields()?;
        let mut context = self.context.clone();
        for key in ["user", "trigger", "trace", "trace_state"] {
            context.insert(key.into(), event.remove(key).unwrap_or(Value::Null));
        }
        for key in ["id", "ts", "method", "path", "raw_path", "client", "session"] {
            if !event.contains_key(key) {
                event.insert(key.into(), Value::Null);
            }
        }
        for key in ["params", "query", "headers"] {
            if !matches!(event.get(key), Some(Value::Object(_))) {
                event.insert(key.into(), Value::Object(Map::new()));
            }
        }
        context.insert("request_id".into(), event["id"].clone());
        event.insert("path_params".into(), event["params"].clone());
        let (text, bytes) = match String::from_utf8(frame.body) {
            Ok(text) if text.is_empty() => (Value::Null, None),
            Ok(text) => (text.into(), None),
            Err(other) => (Value::Null, Some(base64::encode(other.as_bytes()))),
        };
        event.insert("body".into(), text);
        event.insert("is_base64".into(), bytes.is_some().into());
        event.insert("body_base64".into(), bytes.map_or(Value::Null, Value::from));
        event.insert("version".into(), self.version.clone());
        event.insert("env".into(), self.env.clone());
        event.insert("context".into(), Value::Object(context));
        // Params have a name of their own in the event, where no field has it.
        if let Some(Value::Object(params)) = event.get("params").cloned() {
            for (name, value) in params {
                event.entry(name).or_insert(value);
            }
        }
        Ok(Value::Object(event))
    }
}
