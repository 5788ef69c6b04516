package fngwruntime

import _ "unsafe" // for linkname

// atExit is called before os.Exit ends the process. The build puts it there; in a program that was built without it is nil.
//
//go:linkname atExit os.fngwExit
var atExit func()
