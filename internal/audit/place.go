package audit

import (
	"slices"
	"strings"
)

// place names the lock of a record: its repository, with #NAME behind it if the lock has a name, or
// what the record has for another system's lock. It is the same for a repository that --repo names
// and one of --also. It is "" if the record has no path.
func (r Record) place() string {
	path, beside := strings.CutPrefix(r.LockPath, "repo:")
	path = strings.TrimPrefix(path, "file://")
	end := strings.LastIndex(path, "/index/lock")
	switch {
	case beside:
		repo, name, _ := strings.Cut(path, "#")
		repo, _, _ = strings.Cut(repo, "?")
		return strings.TrimSuffix(repo, "/") + "#" + name
	case end < 0:
		return path
	case r.LockName != "" && r.LockName != "repository":
		return path[:end] + "#" + r.LockName
	default:
		return path[:max(end, len("/"))]
	}
}

// Several reports whether the locks of a history are of more than one place: locks of different
// places don't exclude each other.
func (h History) Several() bool {
	places := map[string]bool{}
	for _, s := range h.Spans {
		places[s.Place] = true
	}
	for _, m := range h.Removals {
		places[m.Place] = true
	}
	delete(places, "") // not known
	return len(places) > 1
}

// group is the lanes of one place.
type group struct {
	place             string
	exclusive, shared []*track
	y                 int // of its first lane
}

// group returns the lanes of a place.
func (t *Timeline) group(place string) *group {
	at, found := slices.BinarySearchFunc(t.groups, place, func(g *group, place string) int { return strings.Compare(g.place, place) })
	if !found {
		t.groups = slices.Insert(t.groups, at, &group{place: place})
	}
	return t.groups[at]
}

// stack assigns the groups their height, and returns where the last ends. Each has a line for its name
// if there are several places. A place alone has a lane of each mode, even an empty one.
func (t *Timeline) stack() int {
	y := top
	for _, g := range t.groups {
		if t.several {
			y += heading
		}
		g.y = y
		y += g.lanes(t.several) * lane
	}
	return y
}

func (g *group) lanes(several bool) int {
	if several {
		return len(g.exclusive) + len(g.shared)
	}
	return max(len(g.exclusive), 1) + max(len(g.shared), 1)
}
