package fngwruntime

import (
	"encoding/base64"
	"strings"
)

func encodeBase64(data []byte) string {
	text := make([]byte, base64.StdEncoding.EncodedLen(len(data)))
	base64.StdEncoding.Encode(text, data)
	return toText(text)
}

// decodeBase64 takes text with or without its padding, and none of the line breaks that the library passes over.
func decodeBase64(text string) ([]byte, error) {
	if strings.IndexByte(text, '\r') >= 0 || strings.IndexByte(text, '\n') >= 0 {
		return nil, base64.CorruptInputError(0)
	}
	if strings.HasSuffix(text, "=") {
		return base64.StdEncoding.DecodeString(text)
	}
	return base64.RawStdEncoding.DecodeString(text)
}
