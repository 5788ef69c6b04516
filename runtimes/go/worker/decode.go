package fngwruntime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A parser of the JSON that gateways send. Its strings share the memory of the text, which makes it several times as
// fast as the general one for headers of many short strings.

const maxDepth = 512

var errJSON = errors.New("frame header is not a JSON object")

type decoder struct {
	text string
	at   int
	// The text has neither a backslash nor a control character: a string ends at the next quotation mark.
	isPlain bool
	// Places for strings that become values: one piece of memory for several.
	places []string
}

const placesTogether = 8

// parseObject gives maps, slices, strings, float64, bool and nil, as encoding/json does. The strings are parts of the header,
// which nobody may write to any more.
func parseObject(header []byte) (map[string]any, error) {
	object := map[string]any{}
	return object, parseFields(header, func(key string, value any) { object[key] = value })
}

// parseFields gives the fields of an object one after the other. None is right when it fails.
func parseFields(header []byte, take func(key string, value any)) error {
	if len(header) == 0 {
		return nil
	}
	if !utf8.Valid(header) {
		return errJSON
	}
	d := decoder{text: toText(header), isPlain: !needsCare(header)}
	d.space()
	if d.at == len(d.text) || d.text[d.at] != '{' || !d.fields(0, take) {
		return errJSON
	}
	d.space()
	if d.at != len(d.text) {
		return errJSON
	}
	return nil
}

// needsCare tells whether a text has a backslash or a control character, eight bytes at a time.
func needsCare(text []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	if bytes.IndexByte(text, '\\') >= 0 {
		return true
	}
	for ; len(text) >= 8; text = text[8:] {
		word := binary.LittleEndian.Uint64(text)
		// The high bit of a byte is set in here when the byte is below a space.
		if (word-0x20*ones)&^word&high != 0 {
			return true
		}
	}
	for _, char := range text {
		if char < ' ' {
			return true
		}
	}
	return false
}

func (d *decoder) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\n', '\r', '\t':
			d.at++
		default:
			return
		}
	}
}

func (d *decoder) take(char byte) bool {
	if d.at < len(d.text) && d.text[d.at] == char {
		d.at++
		return true
	}
	return false
}

func (d *decoder) word(word string) bool {
	if len(d.text)-d.at < len(word) || d.text[d.at:d.at+len(word)] != word {
		return false
	}
	d.at += len(word)
	return true
}

func (d *decoder) value(depth int) (any, bool) {
	if d.at >= len(d.text) || depth > maxDepth {
		return nil, false
	}
	switch d.text[d.at] {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		text, ok := d.string()
		return d.place(text), ok
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	default:
		return d.number()
	}
}

func (d *decoder) object(depth int) (any, bool) {
	object := map[string]any{}
	return object, d.fields(depth, func(key string, value any) { object[key] = value })
}

// fields reads an object, from its brace on.
func (d *decoder) fields(depth int, take func(key string, value any)) bool {
	d.at++
	d.space()
	if d.take('}') {
		return true
	}
	for {
		d.space()
		if d.at >= len(d.text) || d.text[d.at] != '"' {
			return false
		}
		key, ok := d.string()
		if !ok {
			return false
		}
		d.space()
		if !d.take(':') {
			return false
		}
		d.space()
		value, ok := d.value(depth + 1)
		if !ok {
			return false
		}
		take(key, value)
		d.space()
		if d.take('}') {
			return true
		}
		if !d.take(',') {
			return false
		}
	}
}

func (d *decoder) array(depth int) (any, bool) {
	array := []any{}
	d.at++
	d.space()
	if d.take(']') {
		return array, true
	}
	for {
		d.space()
		value, ok := d.value(depth + 1)
		if !ok {
			return nil, false
		}
		array = append(array, value)
		d.space()
		if d.take(']') {
			return array, true
		}
		if !d.take(',') {
			return nil, false
		}
	}
}

// place makes a value of a string without memory of its own for that.
func (d *decoder) place(text string) any {
	if len(d.places) == 0 {
		d.places = make([]string, placesTogether)
	}
	at := &d.places[0]
	d.places = d.places[1:]
	*at = text
	return toValue(at)
}

func (d *decoder) string() (string, bool) {
	d.at++
	from := d.at
	if d.isPlain {
		length := strings.IndexByte(d.text[from:], '"')
		if length < 0 {
			return "", false
		}
		d.at += length + 1
		return d.text[from : from+length], true
	}
	for d.at < len(d.text) {
		switch char := d.text[d.at]; {
		case char == '"':
			d.at++
			return d.text[from : d.at-1], true
		case char == '\\':
			return d.escaped(from)
		case char < 0x20:
			return "", false
		default:
			d.at++
		}
	}
	return "", false
}

func (d *decoder) escaped(from int) (string, bool) {
	made := append([]byte(nil), d.text[from:d.at]...)
	for d.at < len(d.text) {
		char := d.text[d.at]
		d.at++
		if char == '"' {
			return string(made), true
		}
		if char < 0x20 {
			return "", false
		}
		if char != '\\' {
			made = append(made, char)
			continue
		}
		if d.at >= len(d.text) {
			return "", false
		}
		char = d.text[d.at]
		d.at++
		switch char {
		case '"', '\\', '/':
			made = append(made, char)
		case 'b':
			made = append(made, '\b')
		case 'f':
			made = append(made, '\f')
		case 'n':
			made = append(made, '\n')
		case 'r':
			made = append(made, '\r')
		case 't':
			made = append(made, '\t')
		case 'u':
			first, ok := d.unit()
			if !ok {
				return "", false
			}
			if utf16.IsSurrogate(first) {
				// A lone half has no UTF-8 form and becomes U+FFFD, as with encoding/json.
				back := d.at
				second := rune(0)
				if d.word(`\u`) {
					second, _ = d.unit()
				}
				first = utf16.DecodeRune(first, second)
				if first == utf8.RuneError {
					d.at = back
				}
			}
			made = utf8.AppendRune(made, first)
		default:
			return "", false
		}
	}
	return "", false
}

func (d *decoder) unit() (rune, bool) {
	if len(d.text)-d.at < 4 {
		return 0, false
	}
	unit, err := strconv.ParseUint(d.text[d.at:d.at+4], 16, 32)
	d.at += 4
	return rune(unit), err == nil
}

func (d *decoder) number() (any, bool) {
	from := d.at
	for d.at < len(d.text) {
		switch char := d.text[d.at]; {
		case char >= '0' && char <= '9', char == '-', char == '+', char == '.', char == 'e', char == 'E':
			d.at++
			continue
		}
		break
	}
	number, err := strconv.ParseFloat(d.text[from:d.at], 64)
	return number, err == nil
}
