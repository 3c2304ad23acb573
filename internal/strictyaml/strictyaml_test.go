package strictyaml

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	type file struct {
		Name string `yaml:"name"`
		Port int    `yaml:"port"`
	}
	for _, c := range []struct {
		name, text string
		want       file
		err        string // what the error holds; "" for none
	}{
		{"a mapping", "name: a\nport: 5", file{"a", 5}, ""},
		{"JSON", `{"name": "a", "port": 5}`, file{"a", 5}, ""},
		{"an unknown key", "name: a\nprot: 5", file{}, "line 2: field prot not found"},
		{"two mistakes", "nam: a\nprot: 5", file{}, "; line 2"},
		{"a wrong type", "port: five", file{}, "line 1: cannot unmarshal"},
		{"nothing", "", file{}, "empty"},
		{"only a comment", "# a", file{}, "empty"},
		{"no YAML", "name: [", file{}, "line 1"},
		{"two documents", "name: a\n---\nname: b", file{}, "more than one document"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got file
			err := Decode([]byte(c.text), &got)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err == "" && got != c.want:
				t.Fatalf("%+v, want %+v", got, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("%v, want it to say %q", err, c.err)
			case c.err != "" && strings.Contains(err.Error(), "\n"):
				t.Fatalf("%q is more than one line", err)
			}
		})
	}
}
