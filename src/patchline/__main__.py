"""`python -m patchline`."""

from patchline.cli import main

raise SystemExit(main())
