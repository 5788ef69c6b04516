package slug

import (
	"strings"
	"unicode"
)

// Letters with marks that have an obvious plain spelling.
var plain = strings.NewReplacer(
	"ä", "ae", "ö", "oe", "ü", "ue", "ß", "ss", "æ", "ae", "ø", "o", "å", "a",
	"à", "a", "á", "a", "â", "a", "è", "e", "é", "e", "ê", "e", "ç", "c", "î", "i", "ï", "i", "ñ", "n", "ó", "o", "ô", "o", "ú", "u", "û", "u",
)

func toSlug(text string) string {
	words := strings.FieldsFunc(plain.Replace(strings.ToLower(text)), func(char rune) bool {
		return !unicode.IsLetter(char) && !unicode.IsDigit(char)
	})
	return strings.Join(words, "-")
}
