package fngwruntime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	textType  = "text/plain; charset=utf-8"
	jsonType  = "application/json"
	bytesType = "application/octet-stream"
	// Bytes that the head of most answers has room in.
	headRoom = 128
	// Characters of a value quoted in a message.
	maxShownChars = 60
)

// contractError says how the answer breaks the response contract; the gateway sends 502.
type contractError string

func (e contractError) Error() string { return string(e) }

func broken(format string, args ...any) error { return contractError(fmt.Sprintf(format, args...)) }

// answer is a reply: JSON text of its header without the closing brace, and its body.
type answer struct {
	head string
	content
}

// content is a body, and the content type that it has unless the handler says otherwise.
type content struct {
	body []byte
	kind string
	// The body lies in memory of its own, which no handler knows.
	isDecoded bool
}

// toAnswer reads an envelope { status, headers, body } or { proxy }.
func toAnswer(value any, asked given) (answer, error) {
	envelope, err := toEnvelope(value)
	if err != nil {
		return answer{}, err
	}
	if proxy, isGiven := envelope["proxy"]; isGiven && proxy != nil {
		return toProxy(proxy, asked)
	}
	given, isGiven := envelope["status"]
	if !isGiven || given == nil {
		given = envelope["statusCode"]
	}
	status, err := toStatus(given)
	if err != nil {
		return answer{}, err
	}
	headers, err := toHeaders(envelope["headers"])
	if err != nil {
		return answer{}, err
	}
	made, err := toContent(envelope, "", asked)
	if err != nil {
		return answer{}, err
	}
	if made.kind != "" && !headers.isTyped() {
		headers = append(headers, header{name: "content-type", value: made.kind})
	}
	head := strconv.AppendInt(append(make([]byte, 0, headRoom), `{"status":`...), int64(status), 10)
	return answer{toText(headers.appendJSON(append(head, `,"headers":`...))), made}, nil
}

func toEnvelope(value any) (map[string]any, error) {
	switch value := value.(type) {
	case map[string]any:
		if value == nil {
			return nil, broken("the answer must be an object with status, headers and body, got nil")
		}
		return value, nil
	case nil, string, bool, []byte, int, int64, float64, []any:
		return nil, broken("the answer must be an object with status, headers and body, got %s", show(value))
	}
	// A struct or a map of another type: what JSON makes of it.
	text, err := toJSON("the answer", value)
	if err != nil {
		return nil, err
	}
	var envelope map[string]any
	from := json.NewDecoder(bytes.NewReader(text))
	from.UseNumber()
	if from.Decode(&envelope) != nil || envelope == nil {
		return nil, broken("the answer must be an object with status, headers and body, got %s", show(value))
	}
	return envelope, nil
}

func toStatus(value any) (int, error) {
	status, isInteger := toInteger(value)
	if !isInteger || status < 100 || status > 599 {
		return 0, broken("status must be an integer from 100 to 599, got %s", show(value))
	}
	return int(status), nil
}

func toInteger(value any) (int64, bool) {
	switch value := value.(type) {
	case int:
		return int64(value), true
	case float64:
		return int64(value), value == math.Trunc(value) && math.Abs(value) < 1e15
	case json.Number:
		number, err := value.Int64()
		return number, err == nil
	}
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return of.Int(), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return int64(of.Uint()), of.Uint() <= math.MaxInt32
	}
	return 0, false
}

// toContent reads the body of an envelope. Base64 text that came with the call goes back as the bytes that it was made of.
func toContent(envelope map[string]any, prefix string, asked given) (content, error) {
	body := envelope["body"]
	encoded := envelope["body_base64"]
	isBase64 := false
	switch flag := envelope["is_base64"].(type) {
	case nil:
	case bool:
		isBase64 = flag
	default:
		return content{}, broken("%sis_base64 must be true or false, got %s", prefix, show(flag))
	}
	if encoded != nil && (isBase64 || body == nil) {
		text, isText := encoded.(string)
		if !isText {
			return content{}, broken("%sbody_base64 must be base64 text, got %s", prefix, show(encoded))
		}
		if asked.bytes != nil && text == asked.base64 {
			return content{body: asked.bytes, kind: bytesType}, nil
		}
		data, err := decodeBase64(text)
		if err != nil {
			return content{}, broken("%sbody_base64 must be base64 text, got %s", prefix, show(encoded))
		}
		return content{body: data, kind: bytesType, isDecoded: true}, nil
	}
	if isBase64 {
		return content{}, broken("%sis_base64 is true, but body_base64 is missing", prefix)
	}
	switch body := body.(type) {
	case nil:
		return content{}, nil
	case string:
		if !utf8.ValidString(body) {
			// It takes several times as long to look itself.
			body = strings.ToValidUTF8(body, "\uFFFD")
		}
		return content{body: toBytes(body), kind: textType}, nil
	case []byte:
		return content{body: body, kind: bytesType}, nil
	}
	data, err := toJSON(prefix+"body", body)
	return content{body: data, kind: jsonType}, err
}

// toProxy makes the edge proxy directive; its body travels as the frame's.
func toProxy(value any, asked given) (answer, error) {
	proxy, isObject := value.(map[string]any)
	if !isObject {
		return answer{}, broken("proxy must be an object, got %s", show(value))
	}
	fields := make(map[string]any, len(proxy))
	for key, item := range proxy {
		if key != "body" && key != "body_base64" && key != "is_base64" && key != "headers" {
			fields[key] = item
		}
	}
	headers, err := toHeaders(proxy["headers"])
	if err != nil {
		return answer{}, err
	}
	made, err := toContent(proxy, "proxy.", asked)
	if err != nil {
		return answer{}, err
	}
	if made.kind == jsonType && !headers.isTyped() {
		headers = append(headers, header{name: "content-type", value: made.kind})
	}
	if len(headers) > 0 {
		fields["headers"] = json.RawMessage(headers.appendJSON(nil))
	}
	text, err := toJSON("proxy", fields)
	if err != nil {
		return answer{}, err
	}
	return answer{`{"proxy":` + string(text), made}, nil
}

// header has one value, or those of a list.
type header struct {
	name   string
	value  string
	values []string
}

type headerList []header

func (h headerList) isTyped() bool {
	for _, header := range h {
		if len(header.name) == 12 && strings.EqualFold(header.name, "content-type") {
			return true
		}
	}
	return false
}

// appendJSON gives equal text for equal headers: the gateway remembers heads that it has checked.
func (h headerList) appendJSON(to []byte) []byte {
	to = append(to, '{')
	for i, header := range h {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendQuoted(to, header.name), ':')
		if header.values == nil {
			to = appendQuoted(to, header.value)
			continue
		}
		to = append(to, '[')
		for j, value := range header.values {
			if j > 0 {
				to = append(to, ',')
			}
			to = appendQuoted(to, value)
		}
		to = append(to, ']')
	}
	return append(to, '}')
}

func (h headerList) Len() int           { return len(h) }
func (h headerList) Less(i, j int) bool { return h[i].name < h[j].name }
func (h headerList) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func toHeaders(value any) (headerList, error) {
	var list headerList
	switch headers := value.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		list = make(headerList, 0, len(headers)+1)
		for name, value := range headers {
			if value == nil {
				continue
			}
			header, err := toHeader(name, value)
			if err != nil {
				return nil, err
			}
			list = append(list, header)
		}
	case map[string]string:
		for name, value := range headers {
			list = append(list, header{name: name, value: value})
		}
	default:
		of := reflect.ValueOf(value)
		if of.Kind() == reflect.Slice && of.Len() == 0 {
			return nil, nil
		}
		many := reflect.TypeOf(map[string][]string(nil))
		if !of.Type().ConvertibleTo(many) {
			return nil, broken("headers must be an object, got %s", show(value))
		}
		for name, values := range of.Convert(many).Interface().(map[string][]string) {
			list = append(list, toListHeader(name, values))
		}
	}
	if len(list) > 1 {
		sort.Sort(list)
	}
	for _, header := range list {
		if !isToken(header.name) {
			return nil, broken("header name %s is not allowed in HTTP", quote(header.name))
		}
		if err := checkHeaderText(header.name, header.value); err != nil {
			return nil, err
		}
		for _, value := range header.values {
			if err := checkHeaderText(header.name, value); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func checkHeaderText(name, value string) error {
	for _, char := range value {
		if (char < 0x20 && char != '\t') || char == 0x7f || char > 0xff {
			return broken(`header "%s" holds the character U+%04X, which HTTP does not allow there`, name, char)
		}
	}
	return nil
}

func toListHeader(name string, values []string) header {
	switch len(values) {
	case 0:
		return header{name: name, values: []string{}}
	case 1:
		return header{name: name, value: values[0]}
	}
	return header{name: name, values: values}
}

func toHeader(name string, value any) (header, error) {
	switch values := value.(type) {
	case string:
		return header{name: name, value: values}, nil
	case []string:
		return toListHeader(name, values), nil
	case []any:
		texts := make([]string, len(values))
		for i, value := range values {
			text, isText := toHeaderText(value)
			if !isText {
				return header{}, badHeader(name, value)
			}
			texts[i] = text
		}
		return toListHeader(name, texts), nil
	}
	text, isText := toHeaderText(value)
	if !isText {
		return header{}, badHeader(name, value)
	}
	return header{name: name, value: text}, nil
}

func badHeader(name string, value any) error {
	return broken(`header "%s" must be a string, a number, a boolean or a list of them, got %s`, name, show(value))
}

func toHeaderText(value any) (string, bool) {
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.String:
		return of.String(), true
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprint(value), true
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(of.Float(), 'f', -1, 64), true
	}
	return "", false
}

func isToken(name string) bool {
	for i := 0; i < len(name); i++ {
		char := name[i]
		isLetter := (char|0x20) >= 'a' && (char|0x20) <= 'z'
		if !isLetter && (char < '0' || char > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(char)) {
			return false
		}
	}
	return name != ""
}

// toJSON is compact and does not escape <, > and &, which are harmless outside of HTML.
func toJSON(what string, value any) ([]byte, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		var unsupported *json.UnsupportedValueError
		if errors.As(err, &unsupported) {
			return nil, broken("%s cannot be written as JSON: %s", what, unsupported.Str)
		}
		return nil, broken("%s cannot be written as JSON: %s", what, strings.TrimPrefix(err.Error(), "json: "))
	}
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'}), nil
}

func quote(text string) string { return toText(appendQuoted(nil, text)) }

func appendQuoted(to []byte, text string) []byte {
	if isPlain(text) {
		return append(append(append(to, '"'), text...), '"')
	}
	quoted, _ := toJSON("text", text)
	return append(to, quoted...)
}

// isPlain is true for what JSON has as it is.
func isPlain(text string) bool {
	for i := 0; i < len(text); i++ {
		if char := text[i]; char < ' ' || char > '~' || char == '"' || char == '\\' {
			return false
		}
	}
	return true
}

// show gives a value with its type, short enough for a message; the same words in every runtime.
func show(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return quote(shorten(value)) + " (string)"
	case bool:
		return strconv.FormatBool(value) + " (boolean)"
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64) + " (number)"
	case json.Number:
		return shorten(value.String()) + " (number)"
	case []byte:
		return fmt.Sprintf("%d bytes", len(value))
	}
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice, reflect.Array:
		if of.Len() == 1 {
			return "an array of 1 item"
		}
		return fmt.Sprintf("an array of %d items", of.Len())
	case reflect.Func:
		return "a function"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprint(value) + " (number)"
	}
	return shorten(fmt.Sprint(value)) + fmt.Sprintf(" (%T)", value)
}

func shorten(text string) string {
	count := 0
	for at := range text {
		if count == maxShownChars {
			return text[:at] + "..."
		}
		count++
	}
	return text
}
