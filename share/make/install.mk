# install, uninstall, dist.

# Debian's own packages have another place for completions of zsh than all others.
ZSH := share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
COMPLETIONS := $(foreach s,bash zsh,$(PROGS:%=$(B)/completions/$(s)/%))

# Where python3 looks for modules below PREFIX; a package's rules may set the folder.
PYTHON_DIR = $(shell python3 -E -c 'import site, sys; print(next("lib/" + p[len(sys.argv[1]):] \
	for p in [*sys.path, site.getusersitepackages()] if p.startswith(sys.argv[1]) and \
	p.endswith("-packages")))' "$(PREFIX)/lib/" 2>/dev/null || echo lib/python3/dist-packages)

# "source:destination" of every file, below PREFIX.  Jobs name models by a path relative
# to themselves, so the folders of share/ keep their shape.  systemd(1) looks for units
# below /usr and /usr/local.
INSTALLED = $(foreach f,$(PROG_BIN),$(f):bin/$(notdir $(f))) \
	$(foreach p,$(PROGS),$(B)/completions/bash/$(p):share/bash-completion/completions/$(p) \
		$(B)/completions/zsh/$(p):$(ZSH)/_$(p)) \
	$(foreach f,$(wildcard share/systemd/*.service),$(f):lib/systemd/system/$(notdir $(f))) \
	$(foreach f,$(wildcard man/*.[157]),$(f):share/man/man$(subst .,,$(suffix \
		$(f)))/$(notdir $(f))) \
	$(foreach f,$(wildcard share/models/* share/jobs/* share/data/fetch share/systemd/*.conf \
		share/vectors/* share/prometheus/* share/plots/*),\
		$(f):share/falcon/$(f:share/%=%)) \
	$(foreach f,$(wildcard share/falcon_train.py),$(f):$(PYTHON_DIR)/$(notdir $(f)))

# Where the programs are, as a unit says it, in a sed(1) replacement: it knows % for itself.
PATH_IN_UNIT = sed 's/%/%%/g; s/[&|\\]/\\&/g'

# Executables stay executable.  Units name programs by their paths, as systemd(1) looks for
# others in folders of its own alone.
.PHONY: install uninstall dist
$(B)/completions/bash/% $(B)/completions/zsh/%: $(B)/% share/make/completions
	@mkdir -p $(B)/completions/bash $(B)/completions/zsh
	@for s in bash zsh; do share/make/completions $$s $< >$(B)/completions/$$s/$*; done

install: all $(COMPLETIONS)
	@set -e; for f in $(INSTALLED); do \
		src=$${f%%:*}; dst="$(DESTDIR)$(PREFIX)/$${f#*:}"; mode=644; \
		if [ -x "$$src" ]; then mode=755; fi; \
		install -D -m $$mode "$$src" "$$dst"; echo "$$dst"; \
		case $$dst in *.service) \
			prefix=$$(printf '%s\n' "$(PREFIX)" | $(PATH_IN_UNIT)); \
			sed -i "s|@prefix@|$$prefix|g" "$$dst" ;; \
		esac; \
	done

# Exactly what install put there, and the folders that are ours alone.
uninstall:
	@for f in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/$${f#*:}"; done
	@rm -f "$(DESTDIR)$(PREFIX)/$(PYTHON_DIR)/__pycache__/falcon_train."*
	@d="$(DESTDIR)$(PREFIX)/share/falcon"; if [ -d "$$d" ]; then \
		find "$$d" -depth -type d -exec rmdir --ignore-fail-on-non-empty {} +; fi

dist:
	@mkdir -p build
	git archive --format=tar.gz --prefix=falcon-$(RELEASE)/ \
		-o build/falcon-$(RELEASE).tar.gz HEAD
