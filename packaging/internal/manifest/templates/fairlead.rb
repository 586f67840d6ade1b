# Homebrew formula of the agent and its command line.
class Fairlead < Formula
  desc "Private endpoints from anywhere, bound into Kubernetes clusters"
  homepage "https://github.com/fairlead-dev/fairlead"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Systems}}
  on_{{.Homebrew}} do
{{- range .Archives}}
    on_{{.Homebrew}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "fairlead"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/fairlead.bash" => "fairlead"
    fish_completion.install "completions/fairlead.fish"
    zsh_completion.install "completions/fairlead.zsh" => "_fairlead"
  end

  service do
    run [opt_bin/"fairlead", "start", "--all"]
    keep_alive true
    log_path var/"log/fairlead.log"
    error_log_path var/"log/fairlead.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fairlead --version")
  end
end
