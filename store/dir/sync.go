package dir

import "os"

// syncUp makes a directory's entries durable, and its own entry in the one
// above, up to the root: whoever made those directories need not have.
func syncUp(root *os.Root, dir string) error {
	for {
		at := dir
		if at == "" {
			at = "."
		}
		if err := syncDir(root, at); err != nil {
			return err
		}
		if dir == "" {
			return nil
		}
		dir, _ = split(dir)
	}
}
