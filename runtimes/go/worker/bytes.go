package fngwruntime

import "unsafe"

// toText makes a text of bytes that nobody writes to any more, without a copy.
func toText(bytes []byte) string { return *(*string)(unsafe.Pointer(&bytes)) }

// toBytes gives the bytes of a text, which nobody may write to, without a copy.
func toBytes(text string) []byte {
	if text == "" {
		return nil
	}
	return *(*[]byte)(unsafe.Pointer(&struct {
		string
		int
	}{text, len(text)}))
}

// toValue makes a value of a string that nobody changes any more, without a copy of it.
func toValue(at *string) (value any) {
	value = ""
	// A value is the type of what it holds, and where that is.
	(*[2]unsafe.Pointer)(unsafe.Pointer(&value))[1] = unsafe.Pointer(at)
	return value
}
