package frazil;

/** Requests to a REST catalog, counted by what they are about. */
final class RestRequests {
  private RestRequests() {}

  /** Counts a call of Iceberg's client. Every method but two is a request, and each of these has its path first. */
  static void count(String method, Object[] arguments) {
    if (arguments != null && arguments[0] instanceof String path) {
      Requests.count("catalog", kind(method, path));
    }
  }

  private static String kind(String method, String path) {
    int at = path.indexOf("/namespaces");
    if (at < 0) {
      return switch (path.substring(path.lastIndexOf('/') + 1)) {
        case "config" -> "config";
        case "commit" -> "commit";
        case "rename" -> "rename";
        default -> method.equals("postForm") ? "token" : "other";
      };
    }
    String[] parts = path.substring(at + 1).split("/");
    return switch (parts.length < 3 ? "" : parts[2]) {
      case "tables" -> parts.length > 4 ? ofTable(parts[4]) : onTables(method, parts.length == 4);
      case "register" -> "create";
      case "views", "register-view" -> "view";
      default -> "namespace";
    };
  }

  private static String onTables(String method, boolean one) {
    return switch (method) {
      case "head" -> "exists";
      case "get" -> one ? "load" : "list";
      case "post" -> one ? "commit" : "create";
      default -> "drop";
    };
  }

  private static String ofTable(String what) {
    return switch (what) {
      case "metrics" -> "report";
      case "credentials", "sign" -> "credentials";
      case "plan", "tasks" -> "plan";
      default -> "other";
    };
  }
}
