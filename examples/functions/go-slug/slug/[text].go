// Package slug turns any text into a short name for a URL.
package slug

import "strings"

func handler(event map[string]any) map[string]any {
	text := event["params"].(map[string]any)["text"].(string)
	name := toSlug(text)
	if name == "" {
		return map[string]any{"status": 422, "body": map[string]any{"error": "the text has no letters or digits"}}
	}
	return map[string]any{
		"status":  200,
		"headers": map[string]any{"cache-control": "public, max-age=86400"},
		"body":    map[string]any{"slug": name, "words": strings.Count(name, "-") + 1},
	}
}
