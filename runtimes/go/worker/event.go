package fngwruntime

import "unicode/utf8"

// function is what the start frame says, the same for every call.
type function struct {
	root string
	dir  string
	// Folder of the handler file.
	source string
	// Import path of the function's module.
	module  string
	version string
	// What the event, its context and its environment of each call begin as.
	event, context, env template
}

// prepare takes what is the same for every call.
func (f *function) prepare(context, env map[string]any) {
	event := map[string]any{"is_base64": false, "version": f.version}
	for _, key := range [...]string{
		"id", "ts", "method", "path", "raw_path", "params", "path_params", "query", "headers", "client", "session",
		"body", "body_base64", "env", "context",
	} {
		event[key] = nil
	}
	f.event, f.context, f.env = newTemplate(event), newTemplate(context), newTemplate(env)
	for _, key := range [...]string{"user", "trigger", "trace", "trace_state", "request_id"} {
		f.context.fields[key] = nil
	}
}

// toEvent makes the handler's event of a call, without its body. The fields of the header are the event's own; some of them belong into
// its context. Nothing in it is shared between calls.
func (f *function) toEvent(header []byte) (map[string]any, error) {
	event, context := f.event.make(), f.context.make()
	err := parseFields(header, func(key string, value any) {
		switch key {
		case "user", "trigger", "trace", "trace_state":
			context[key] = value
		case "body", "is_base64", "body_base64", "version":
			// Not the header's to say.
		default:
			event[key] = value
		}
	})
	if err != nil {
		return nil, err
	}
	context["request_id"] = event["id"]
	for _, key := range [...]string{"params", "query", "headers"} {
		if _, isObject := event[key].(map[string]any); !isObject {
			event[key] = map[string]any{}
		}
	}
	event["path_params"] = event["params"]
	event["env"] = f.env.make()
	event["context"] = context
	mergeParams(event)
	return event, nil
}

// given is the body of a call that is no text: its bytes, which the handler does not see, and their base64 text, which it does.
type given struct {
	bytes  []byte
	base64 string
}

func addBody(event map[string]any, body []byte) given {
	if len(body) == 0 {
		return given{}
	}
	if utf8.Valid(body) {
		event["body"] = toText(body)
		return given{}
	}
	text := encodeBase64(body)
	event["is_base64"] = true
	event["body_base64"] = text
	return given{body, text}
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

// template is an object of which each call gets its own copy.
type template struct {
	fields map[string]any
	// The fields that are objects or lists.
	nested []string
}

func newTemplate(fields map[string]any) template {
	if fields == nil {
		fields = map[string]any{}
	}
	t := template{fields: fields}
	for key, value := range fields {
		switch value.(type) {
		case map[string]any, []any:
			t.nested = append(t.nested, key)
		}
	}
	return t
}

func (t *template) make() map[string]any {
	made := copyFields(t.fields)
	for _, key := range t.nested {
		made[key] = clone(made[key])
	}
	return made
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := copyFields(value)
		for key, item := range value {
			switch item.(type) {
			case map[string]any, []any:
				copied[key] = clone(item)
			}
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
