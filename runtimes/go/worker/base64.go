package fngwruntime

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
)

const (
	alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	// From so many bytes on, or characters, twelve bits are looked up at once, which takes half as long as the library.
	longBytes = 16 * kib
	// Bytes whose text is made on the stack, in whole steps of six; and what a step reads beyond.
	pieceBytes = 3 * kib
	stepMargin = 2
	// Characters left to the library at the end, with the padding among them.
	tailChars = 16
	// In the place of twelve bits: a pair with a character that is none of the alphabet.
	noPair = 0xffff
)

var (
	// The two characters of each twelve bits, and the other way round: filled when a long body comes for the first time.
	pairs      [1 << 12]uint16
	pairValues *[1 << 16]uint16
	pairsMade  sync.Once
)

func makePairs() {
	pairsMade.Do(func() {
		pairValues = new([1 << 16]uint16)
		for pair := range pairValues {
			pairValues[pair] = noPair
		}
		for bits := range pairs {
			pair := uint16(alphabet[bits>>6]) | uint16(alphabet[bits&63])<<8
			pairs[bits], pairValues[pair] = pair, uint16(bits)
		}
	})
}

func encodeBase64(data []byte) string {
	var text strings.Builder
	// Its memory is not filled with zeros first.
	text.Grow(base64.StdEncoding.EncodedLen(len(data)))
	if len(data) >= longBytes {
		makePairs()
		var piece [pieceBytes / 3 * 4]byte
		for len(data) >= pieceBytes+stepMargin {
			encodePairs(piece[:], data[:pieceBytes+stepMargin])
			text.Write(piece[:])
			data = data[pieceBytes:]
		}
	}
	rest := make([]byte, base64.StdEncoding.EncodedLen(len(data)))
	base64.StdEncoding.Encode(rest, data)
	text.Write(rest)
	return text.String()
}

// encodePairs fills `to`; of `from` it reads two bytes more than it needs.
func encodePairs(to, from []byte) {
	of := &pairs
	for len(to) >= 8 && len(from) >= 8 {
		bits := binary.BigEndian.Uint64(from)
		binary.LittleEndian.PutUint64(to, uint64(of[bits>>52])|uint64(of[bits>>40&0xfff])<<16|
			uint64(of[bits>>28&0xfff])<<32|uint64(of[bits>>16&0xfff])<<48)
		to, from = to[8:], from[6:]
	}
}

// decodeBase64 takes text with or without its padding, and none of the line breaks that the library passes over. The memory is
// taken from what is used again.
func decodeBase64(text string) ([]byte, error) {
	data := takeMemory(base64.RawStdEncoding.DecodedLen(len(text)))
	done := 0
	if len(text) >= longBytes {
		makePairs()
		if done = decodePairs(data, toBytes(text[:len(text)-tailChars])); done == 0 {
			return nil, base64.CorruptInputError(0)
		}
	}
	rest := text[done:]
	if strings.IndexByte(rest, '\r') >= 0 || strings.IndexByte(rest, '\n') >= 0 {
		return nil, base64.CorruptInputError(0)
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(rest, "=") {
		encoding = base64.StdEncoding
	}
	last, err := encoding.DecodeString(rest)
	return data[:done/4*3+copy(data[done/4*3:], last)], err
}

// decodePairs decodes as many characters as it can eight at a time, and tells how many those are; 0 when one is none of the alphabet.
func decodePairs(to, from []byte) int {
	of, all := pairValues, uint16(0)
	done := len(from) / 8 * 8
	for len(from) >= 8 && len(to) >= 8 {
		chars := binary.LittleEndian.Uint64(from)
		a, b, c, d := of[uint16(chars)], of[uint16(chars>>16)], of[uint16(chars>>32)], of[uint16(chars>>48)]
		all |= a | b | c | d
		binary.BigEndian.PutUint64(to, uint64(a)<<52|uint64(b&0xfff)<<40|uint64(c&0xfff)<<28|uint64(d&0xfff)<<16)
		to, from = to[6:], from[8:]
	}
	if all >= 1<<12 {
		return 0
	}
	return done
}
