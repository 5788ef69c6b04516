package fngwruntime

import "unicode/utf8"

// Fields of a complete call header, without those that go into the context.
const eventFields = 10

// function is what the start frame says, the same for every call.
type function struct {
	root string
	dir  string
	// Folder of the handler file.
	source string
	// Import path of the function's module.
	module  string
	version string
	env     map[string]any
	context map[string]any
}

// toEvent makes the handler's event of a call. The fields of the header are the event's own; some of them belong into
// its context. Nothing in it is shared between calls.
func (f *function) toEvent(fields map[string]any, body []byte) map[string]any {
	context := make(map[string]any, len(f.context)+5)
	for key, value := range f.context {
		context[key] = clone(value)
	}
	context["request_id"] = fields["id"]
	for _, key := range [...]string{"user", "trigger", "trace", "trace_state"} {
		context[key] = fields[key]
		delete(fields, key)
	}
	if len(fields) < eventFields {
		for _, key := range [...]string{"id", "ts", "method", "path", "raw_path", "client", "session"} {
			if _, isGiven := fields[key]; !isGiven {
				fields[key] = nil
			}
		}
	}
	for _, key := range [...]string{"params", "query", "headers"} {
		if _, isObject := fields[key].(map[string]any); !isObject {
			fields[key] = map[string]any{}
		}
	}
	fields["path_params"] = fields["params"]
	fields["body"] = nil
	fields["is_base64"] = false
	fields["body_base64"] = nil
	if len(body) > 0 {
		if utf8.Valid(body) {
			fields["body"] = toText(body)
		} else {
			fields["is_base64"] = true
			fields["body_base64"] = encodeBase64(body)
		}
	}
	fields["version"] = f.version
	fields["env"] = clone(f.env)
	fields["context"] = context
	mergeParams(fields)
	return fields
}

// mergeParams gives params a name of their own in the event, where no field has it.
func mergeParams(event map[string]any) {
	params, _ := event["params"].(map[string]any)
	for name, value := range params {
		if _, isTaken := event[name]; !isTaken {
			event[name] = clone(value)
		}
	}
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for key, item := range value {
			copied[key] = clone(item)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, item := range value {
			copied[i] = clone(item)
		}
		return copied
	default:
		return value
	}
}
