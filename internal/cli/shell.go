package cli

import (
	"strings"
	"unicode"
)

// ShellWords writes words as a shell reads them.
func ShellWords(words ...string) string {
	written := make([]string, len(words))
	for i, word := range words {
		written[i] = word
		if word == "" || strings.ContainsFunc(word, special) {
			written[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(written, " ")
}

// special says that a shell may make something else of a character.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:,=@%+", r)
}
